"""The export stage: folders that transformers loads, cards that say what is known, refusal of what differs."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import transformers
import yaml

import bertline
from bertline.encoders.loading import Head, load_model
from bertline.export.build import build_export
from bertline.export.config import ExportConfig
from bertline.finetuning.task_file import read_task_file, write_task_file
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import sha256_of_file
from bertline.kinds.registry import task_kind
from bertline.tokenization.tokenizer import Tokenizer
from export_inputs import EXPORT
from finetuning_inputs import table_source
from linear_models import write_linear


def export(
    pipeline: Any, out: Path, config: ExportConfig = EXPORT, facts: dict[str, Any] | None = None
) -> dict[str, Any]:
    facts = pipeline.facts if facts is None else facts
    return build_export(
        config, pretrain_folder=pipeline.pretrain, sweep_folders=pipeline.sweeps, pipeline_facts=facts, out=out
    )


def test_every_folder_stands_on_its_own(pipeline: Any, tmp_path: Path) -> None:
    figures = export(pipeline, tmp_path / "out")
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "out/encoder"), device="cpu")
    ours = bertline.load(str(tmp_path / "out/encoder"), device="cpu").fill_mask("the [MASK] cafe.", top_k=1)
    theirs = fill("the [MASK] cafe.", top_k=20)
    scores = {guess["token_str"]: guess["score"] for guess in theirs}
    assert scores[ours[0][0].token] == pytest.approx(ours[0][0].probability, abs=1e-5)

    classify = transformers.pipeline("text-classification", model=str(tmp_path / "out/docs_match"), device="cpu")
    expected = classify({"text": "Café", "text_pair": "the cafe"})
    (found,) = bertline.load(str(tmp_path / "out/docs_match"), device="cpu").predict(["Café"], ["the cafe"])
    assert found.label == expected["label"]
    assert found.probability == pytest.approx(expected["score"], abs=1e-5)

    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (manifest["kind"], manifest["format_version"]) == ("export", 2)
    for name in ("encoder", "docs_match"):
        model = manifest["models"][name]
        assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "vocab.txt"} <= set(model["sha256"])
        for file, digest in model["sha256"].items():
            assert sha256_of_file(tmp_path / "out" / name / file) == digest
        assert model["max_logits_difference"] == figures[f"{name}/max_logits_difference"] < 1e-5


def test_a_baseline_that_won_is_the_tasks_model_and_the_encoder_lies_beside_it(pipeline: Any, tmp_path: Path) -> None:
    sweep = pipeline.sweeps["docs_match"]
    write_linear(sweep / "winner", "pairs")
    result = json.loads((sweep / "result.json").read_text())
    name = next(iter(result["baselines"]))
    result["baselines"][name] |= {"title": "what the two texts share", "settings": {"c": 0.1}, "test": 0.987}
    result["winner"] = {"name": name, "sentence": "Exported: what the two texts share."}
    (sweep / "result.json").write_text(json.dumps(result))
    figures = export(pipeline, tmp_path / "out")
    assert {"docs_match/bytes", "docs_match-encoder/bytes", "docs_match-encoder/max_logits_difference"} <= set(figures)
    for folder, label in (("docs_match", "a"), ("docs_match-encoder", "match")):
        model = bertline.load(str(tmp_path / "out" / folder), device="cpu")
        assert label in model.labels and model.predict(["Sign_1 w1"], ["other"])[0].label in model.labels
        digests = json.loads((tmp_path / "out/manifest.json").read_text())["models"][folder]["sha256"]
        assert set(digests) == {path.name for path in (tmp_path / "out" / folder).iterdir()}
    card, of_encoder = ((tmp_path / "out" / folder / "README.md").read_text() for folder in ("docs_match", folder))
    metadata = yaml.safe_load(card.split("---")[1])
    assert metadata["library_name"] == "bertline" and "pipeline_tag" not in metadata
    assert metadata["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.987
    for words in ('bertline.load("tiny-docs-docs_match")', "**this model: what the two texts share**", "| c | 0.1 |"):
        assert words in card
    for words in ("Fine-tuned from", "from transformers", "this model's configuration**"):
        assert words not in card
    assert "# tiny-docs-docs_match-encoder" in of_encoder and "**this model's configuration**" in of_encoder


def test_the_encoder_card_has_data_scores_baselines_and_limits(pipeline: Any, tmp_path: Path) -> None:
    export(pipeline, tmp_path / "out")
    card = (tmp_path / "out/encoder/README.md").read_text()
    assert yaml.safe_load(card.split("---\n", 2)[1]) == {
        "language": "en", "license": "apache-2.0", "library_name": "transformers", "pipeline_tag": "fill-mask",
        "tags": ["bert", "fill-mask", "bertline"],
    }  # fmt: skip
    for said in (
        "# tiny-docs", "5,600", "numpy 2.0", "77 paragraphs: too few words", "3,300 steps of 64 sequences of 64",
        "bf16", "4.130", "6.220",  # loss and its baseline: the artifact's own figures, not the stage's
        "0.420 ± 0.016", "0.280 ± 0.016", "0.320", "at most 64 tokens", "commit `0123abc`", "bertline.load(",
    ):  # fmt: skip
        assert said in card, said
    assert "[MASK]" not in card.split("Where it comes from")[1], "sentences with blanks are no fact of the model"


def test_weights_that_transformers_computes_otherwise_are_not_exported(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("stays")

    def a_little_off(folder: Path, head: Head) -> Any:
        model = load_model(folder, head)
        if head == "mlm":
            model.mlm_head.bias.data[7] += 1e-3
        return model

    monkeypatch.setattr("bertline.export.views.load_model", a_little_off)
    with pytest.raises(ArtifactError, match=r"prediction_logits differ .* Nothing was exported"):
        export(pipeline, out)
    assert [path.name for path in out.iterdir()] == ["old"]
    assert not list(tmp_path.glob(".out*"))
    looser = dataclasses.replace(EXPORT, logits_tolerance=1e-2)
    assert export(pipeline, out, looser)["encoder/max_logits_difference"] == pytest.approx(1e-3, rel=0.01)


def test_a_tokenizer_that_transformers_reads_otherwise_is_not_exported(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: encode(self, text.replace("é", "e x")))
    with pytest.raises(ArtifactError, match="transformers cuts 'Café"):
        export(pipeline, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_exported_file_names_a_folder_of_this_machine(pipeline: Any, tmp_path: Path) -> None:
    here, sweep = str(tmp_path), pipeline.sweeps["docs_match"]
    task_path, result_path = sweep / "best" / "task.json", sweep / "result.json"
    task, result = json.loads(task_path.read_text()), json.loads(result_path.read_text())
    source = table_source(path=f"{here}/rows", train_file=f"{here}/rows/train.csv")
    before = read_task_file(sweep / "best")
    assert before is not None
    config = dataclasses.replace(before.kind.config, source=source, start_from=f"{here}/models/minilm")
    write_task_file(sweep / "best", task_kind(config, task["labels"]), {})
    for arm in ("encoder", "random_weights"):
        result["arms"][arm]["title"] = f"{here}/models/minilm"
    result_path.write_text(json.dumps(result))
    for folder in (pipeline.pretrain, sweep / "best"):
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        places = {"name_or_path": f"{here}/models/minilm", "tokenizer_file": f"{here}/tokenizer.json"}
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **places}))
    params = copy.deepcopy(pipeline.facts["params"])
    params["pretrain"]["start_from"] = f"{here}/models/minilm"
    params["corpus"] = {"path": f"{here}/texts/*.txt"}
    params["tasks"]["docs_match"] = {"start_from": f"{here}/models/minilm", "source": {"path": f"{here}/rows"}}
    export(pipeline, tmp_path / "out", dataclasses.replace(EXPORT, onnx=True), {**pipeline.facts, "params": params})
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {"task.json", "README.md", "model.onnx", "tokenizer_config.json"} <= {path.name for path in files}
    contents = {path: path.read_bytes() for path in files}
    machine = (here.encode(), b"/src/bertline", b"stack_trace")
    assert not [path for path, content in contents.items() if any(word in content for word in machine)]
    # The file still says that it came from elsewhere, and is read.
    finished = read_task_file(tmp_path / "out" / "docs_match")
    assert finished is not None and finished.kind.config.start_from == "./minilm"
    assert "Fine-tuned from another checkpoint" in (tmp_path / "out/docs_match/README.md").read_text()


@pytest.mark.parametrize("name", ["my model", 'a"b', "a`b", "", "a/b/c", ".hidden"])
def test_a_model_name_that_could_break_code_or_registry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="model_name is"):
        dataclasses.replace(EXPORT, model_name=name)
    with pytest.raises(ValueError, match="MLflow registers no name"):
        dataclasses.replace(EXPORT, model_name="ada/encoder", register=True)
