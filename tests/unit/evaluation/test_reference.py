import copy
import dataclasses
import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.evaluation.build import report_page
from bertline.evaluation.charts import pretraining_charts
from bertline.evaluation.facts import PipelineFolders, read_facts
from bertline.evaluation.reference import (
    parse_reference,
    read_references,
    reference_for,
    reference_of_run,
    write_reference,
)
from bertline.foundation.errors import ConfigError
from bertline.foundation.manifests import write_manifest
from bertline.foundation.metrics_log import MetricsLog

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def params() -> dict[str, Any]:
    """The configuration of the one shipped curve that every newcomer's first run compares with."""
    return copy.deepcopy(next(curve for curve in read_references() if curve.name == "docs_tiny").settings)


def changed(params: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    *outer, last = key.split(".")
    section = params
    for part in outer:
        section = section[int(part)] if part.isdigit() else section[part]
    assert section[last] != value
    section[last] = value
    return params


def test_the_shipped_curve_is_whole_and_names_no_place_on_a_machine() -> None:
    (curve,) = read_references()
    (path,) = (ROOT / "src/bertline/evaluation/reference_curves").iterdir()
    assert path.stat().st_size < 30_000 and not re.search(r"\"(/|~|[A-Z]:\\)", path.read_text(encoding="utf-8"))
    assert {"train/mlm_loss", "val/mlm_loss", "val/mlm_accuracy", "val/nsp_accuracy"} <= curve.curves.keys()
    for points in curve.curves.values():
        steps = [step for step, _ in points]
        assert steps == sorted(set(steps)) and len(steps) >= 2
    assert curve.curves["val/mlm_loss"][0][0] == 0
    assert curve.curves["val/mlm_loss"][-1][1] < curve.unigram_entropy - 1
    assert re.fullmatch("[0-9a-f]{40}", curve.commit)
    assert date.fromisoformat(curve.date)
    assert curve.versions.keys() >= {"torch", "pytorch-lightning"}
    assert curve.num_tokens > 0 and curve.train_time_s > 0 and curve.device


MAY_DIFFER = {
    "optimizer.lr": 1e-4, "schedule.num_warmup_steps": 1, "pretrain.seed": 5, "pretrain.precision": "fp32",
    "pretrain.phases.0.steps": 7, "pretrain.validate_every_steps": 3,
}  # fmt: skip
CHANGES_THE_LOSS = {
    "model.hidden_size": 64, "model.num_hidden_layers": 9, "examples.lengths": [128],
    "examples.masking.mask_prob": 0.4, "objective.nsp_weight": 0.25, "tokenizer.vocab_size": 100,
    "corpus.kind": "text", "python_docs.held_out_fraction": 0.5, "pretrain.phases.0.max_length": 8,
    "pretrain.phases.0.global_batch_size": 9,
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), MAY_DIFFER.items())
def test_a_run_that_learns_the_same_otherwise_is_drawn_over_its_reference(
    params: dict[str, Any], key: str, value: Any
) -> None:
    reference = reference_for(changed(params, key, value))
    assert reference is not None
    differences = reference.differences(params)
    if key == "pretrain.validate_every_steps":  # changes nothing that is learnt
        assert differences == []
    else:
        (difference,) = differences
        assert difference.startswith(re.sub(r"\.\d", "", key)) and " instead of " in difference


@pytest.mark.parametrize(("key", "value"), CHANGES_THE_LOSS.items())
def test_a_run_whose_loss_means_something_else_has_no_reference(params: dict[str, Any], key: str, value: Any) -> None:
    assert reference_for(params) is not None
    assert reference_for(changed(params, key, value)) is None


@pytest.fixture
def run(tmp_path: Path, params: dict[str, Any]) -> Path:
    """A finished run folder."""
    folder = tmp_path / "run"
    folder.mkdir()
    frozen = {"stage": "pretrain", "config": {**params, "runtime": {"runs_folder": "/somewhere"}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(frozen))
    log = MetricsLog(folder / "metrics.jsonl")
    for step in range(0, 101, 20):
        log.log(step, {"val/mlm_loss": 9 - step / 20, "val/mlm_accuracy": 0.1, "val/nsp_accuracy": 0.5})
        log.log(step, {"probe/bigram_shift_accuracy": 0.5})
        if step:
            log.log(step, {"train/mlm_loss": 9 - step / 20, "optim/lr": 0.1})
    log.close()
    metrics = {"num_tokens": 1e6, "train_time_s": 12.34, "unigram_entropy": 6.5}
    content = {"metrics": metrics, "versions": {"torch": "2.13.0", "pytorch-lightning": "2.6.6"}}
    write_manifest(folder / "result", kind="pretrain", format_version=1, content=content)
    return folder


def test_a_curve_made_from_a_run_reads_back_and_fits_that_run(
    run: Path, tmp_path: Path, params: dict[str, Any]
) -> None:
    content = reference_of_run(run, name="mine", device="2 CPU cores", commit="0" * 40)
    write_reference(tmp_path / "mine.json", content)
    text = (tmp_path / "mine.json").read_text()
    curve = parse_reference(text, "mine.json")
    assert curve.curves["val/mlm_loss"] == [(step, 9 - step / 20) for step in range(0, 101, 20)]
    assert len(curve.curves["train/mlm_loss"]) == 5
    assert "probe/bigram_shift_accuracy" in curve.curves and "optim/lr" not in curve.curves
    assert curve.settings == json.loads(json.dumps(params))
    assert "/somewhere" not in text
    assert curve.title == f"reference: mine, 2 CPU cores, {curve.date}"


def test_text_that_others_do_not_have_is_no_reference(run: Path) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["config"]["corpus"]["kind"] = "text"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match=r"corpus\.kind=text.*python_docs, hub"):
        reference_of_run(run, name="mine", device="a phone", commit="0" * 40)


def drawn(pipeline: PipelineFolders) -> tuple[dict[str, str], str]:
    """The charts of pretraining, and the report around them."""
    facts = dataclasses.replace(read_facts(pipeline, "a test"), tasks=[])
    charts = pretraining_charts(facts)
    page = report_page(facts, [], pipeline, pretraining=charts, dropped=[], num_documents=0)
    return {one.name: str(one.chart.svg) for one in charts}, page


def test_the_report_draws_the_reference_no_further_than_the_run(
    pipeline: PipelineFolders, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    without, page_without = drawn(pipeline)
    (shipped,) = read_references()
    longer = [(float(step), 4.0) for step in range(0, 6_001, 1_000)]
    shipped = dataclasses.replace(shipped, curves=dict.fromkeys(shipped.curves, longer))
    monkeypatch.setattr("bertline.evaluation.reference.read_references", lambda: [shipped])
    charts, page = drawn(dataclasses.replace(pipeline, params={**pipeline.params, **params}))
    for name, num_curves in (("mlm_loss", 1), ("accuracy", 2)):
        assert "reference:" not in without[name] and "stroke-opacity: 0.25" not in without[name]
        assert charts[name].count("stroke-opacity: 0.25") == num_curves + 1  # and the legend's
        assert charts[name].count(f">{shipped.title}</text>") == 1
        assert ">4,000<" not in charts[name] and ">3,000<" in charts[name]  # the run has 3,300 steps, the other more
    assert "The pale curves are a run of docs_tiny" in page and "After step 3,000 its held-out loss was" in page
    assert "pale curves" not in page_without
