import csv
import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bertline.evaluation.build import build_evaluation
from bertline.evaluation.config import EvaluateConfig
from bertline.evaluation.facts import PipelineFolders
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json, sha256_of_path, write_json
from bertline.foundation.manifests import write_manifest
from bertline.tasks.stored_rows import write_rows
from evaluation_inputs import HOSTILE, KINDS, rows_of_kind

CONFIG = EvaluateConfig(title="A <b>pipeline</b> & more", preset="docs_long", overlap_flag=0.1)


class Page(HTMLParser):
    """What a browser would see: elements, links to elsewhere, text, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.addresses: list[str] = []
        self.words = ""
        self.open: list[str] = []
        self.feed(text)
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


Built = tuple[Path, dict[str, float | int]]


@pytest.fixture(scope="module")
def built(kept_pipeline: PipelineFolders) -> Built:
    """The stage's output of a whole pipeline, and its figures."""
    out = kept_pipeline.pretrain.parent / "evaluate"
    return out, build_evaluation(CONFIG, kept_pipeline, out)


def page_of(out: Path) -> Page:
    return Page((out / "report.html").read_text(encoding="utf-8"))


def overview(page: Page) -> str:
    """What stands between the contents and the first section."""
    return page.words.split("The configuration")[1].split("The pipeline")[0]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def test_the_report_is_one_file_that_asks_for_nothing_from_elsewhere(built: Built) -> None:
    out, _ = built
    page = page_of(out)
    text = (out / "report.html").read_text(encoding="utf-8")
    # A link that a person may follow to the data page next to it; nothing is loaded from there.
    others = [address for address in page.addresses if not address.startswith("#")]
    assert page.addresses and others == ["../pages/data.html"]
    assert page.open == []
    assert not re.search(r"@import|url\((?!#)|<script |<link|<img|<iframe", text)
    assert text.count("<script") == 1  # the template's own, for links within the page
    assert HOSTILE in page.words  # shown as text: error, mask predictions, configuration


def test_no_score_stands_without_its_baselines_and_spread(built: Built) -> None:
    out, figures = built
    words = page_of(out).words.replace("\u202f", " ")
    for task in ("library", "match"):
        sentence = re.search(rf"On {task} it reaches accuracy (.*?label\.)", words)
        assert sentence is not None
        for said in ("0.420 ± 0.016", "5 seeds", "0.280 ± 0.016", "random weights", "0.320 for TF-IDF", "0.090"):
            assert said in sentence.group(1)
        for key in ("encoder/accuracy_mean", "encoder/accuracy_std", "random_weights/accuracy_std"):
            assert f"{task}/{key}" in figures
        assert figures[f"{task}/majority/accuracy"] == 0.09
        assert figures[f"{task}/tfidf/accuracy"] == 0.32
        assert figures[f"{task}/beats_random_weights"] == 1
        assert figures[f"{task}/beats_encoder_2"] == 0


def test_every_section_is_there(built: Built) -> None:
    out, _ = built
    words = page_of(out).words
    for heading in (
        "The pipeline", "Learning to read", "The mask predictions", "Task: library", "What the sweep tried",
        "What is taken for what", "Where it is sure and wrong", "Labels that look wrong", "rows.csv:17",
        "Twice the labels: +0.012.",
        "hold the right one of 90.7 % of the test rows, and 1.40 labels on average; made from 300 rows (dev, which",
        "What it read", "Dropped 4 documents (4 too short), 12,348 paragraphs", "The vocabulary", "The configuration",
    ):  # fmt: skip
        assert heading in words
    drawn = {"scores", "label_efficiency", "trials_learning_rate"}
    plots = {path.stem for path in (out / "plots").iterdir()}
    assert plots >= {"mlm_loss", "accuracy", *(f"library_{one}" for one in drawn)}


def test_curves_are_tables_that_dvc_plots(pipeline: PipelineFolders, tmp_path: Path) -> None:
    measured = {"optim/lr": 1e-3, "optim/grad_norm": 0.5, "perf/tokens_per_s": 8e4}
    with (pipeline.pretrain / "metrics.jsonl").open("a") as rows:
        rows.write(json.dumps({"step": 9999, "time_s": 0.0, "metrics": measured}) + "\n")
    build_evaluation(CONFIG, pipeline, tmp_path / "out")
    losses = rows_of(tmp_path / "out" / "curves" / "mlm_loss.csv")
    assert list(losses[0]) == ["step", "train", "validation", "unigram"]
    assert len(losses) == 66
    assert (losses[0]["validation"], losses[5]["validation"] != "") == ("", True)
    assert {row["unigram"] for row in losses} == {"6.2"}
    accuracies = {path.name: len(rows_of(path)) for path in (tmp_path / "out/curves/accuracy").iterdir()}
    assert accuracies == {"mlm_accuracy.csv": 11, "nsp_accuracy.csv": 66}
    expected = {"step": "9999", "learning_rate": "0.001", "grad_norm": "0.5", "tokens_per_s": "80000.0"}
    assert rows_of(tmp_path / "out" / "curves" / "optimization.csv") == [expected]
    assert len(rows_of(tmp_path / "out" / "curves" / "label_efficiency.csv")) == 18
    confusion = rows_of(tmp_path / "out" / "confusion" / "library.csv")
    assert confusion[:2] == [{"actual": "numpy", "predicted": "torch"}, {"actual": "torch", "predicted": "torch"}]


def test_the_same_artifacts_give_the_same_bytes(pipeline: PipelineFolders, tmp_path: Path) -> None:
    for name in ("first", "second"):
        build_evaluation(CONFIG, pipeline, tmp_path / name)
    assert sha256_of_path(tmp_path / "first") == sha256_of_path(tmp_path / "second")


def test_a_task_of_every_kind_has_its_section_and_a_line_in_the_table(
    whole_pipeline: PipelineFolders, tmp_path: Path
) -> None:
    figures = build_evaluation(CONFIG, whole_pipeline, tmp_path / "out")
    page = page_of(tmp_path / "out")
    assert page.elements.count("script") == 1  # the template's own
    assert page.open == []
    for name in KINDS:
        assert f"Task: {name}" in page.words
        assert name in overview(page)
        assert figures[f"{name}/overlap/test_rows"] == 0
    assert figures["topics/encoder/test_mismatched/accuracy_mean"] == 0.42
    assert {path.stem for path in (tmp_path / "out" / "confusion").iterdir()} == {"library", "match"}


def test_test_rows_that_stand_in_the_corpus_are_figures_and_flagged(pipeline: PipelineFolders, tmp_path: Path) -> None:
    rows = rows_of_kind("library")
    texts = ["The kernel of frame 3 is a series.", *rows.texts_read()[1:]]
    write_rows(pipeline.tasks["library"], "test", dataclasses.replace(rows, texts=texts))
    config = dataclasses.replace(CONFIG, overlap_flag=0.05)
    figures = build_evaluation(config, pipeline, tmp_path / "out")
    assert figures["library/overlap/test_rows"] == pytest.approx(1 / 12)
    page = page_of(tmp_path / "out")
    assert "may have been read in pretraining" in page.words
    assert "8.3 % of test rows in part" in overview(page)  # beside the score
    measured = read_json(tmp_path / "out" / "manifest.json")["overlap"]["library"]["test"]
    assert (measured["ngram"], measured["rows"], measured["flagged"]) == (8, 12, True)


def test_a_result_of_another_format_is_refused(pipeline: PipelineFolders, tmp_path: Path) -> None:
    result = read_json(pipeline.sweeps["match"] / "result.json")
    write_json(pipeline.sweeps["match"] / "result.json", {**result, "format_version": 1})
    with pytest.raises(ArtifactError, match="format_version is 1, this bertline reads 4"):
        build_evaluation(CONFIG, pipeline, tmp_path / "out")


def test_a_pipeline_without_tasks_has_a_report(bare_pipeline: PipelineFolders, tmp_path: Path) -> None:
    figures = build_evaluation(CONFIG, bare_pipeline, tmp_path / "out")
    page = page_of(tmp_path / "out")
    assert "Task:" not in page.words
    assert "mask predictions" not in page.words.split("The configuration")[0]
    assert figures["val/nsp_accuracy"] == 0.79
    assert rows_of(tmp_path / "out" / "curves" / "label_efficiency.csv") == []


def test_a_missing_stage_is_named_and_the_old_report_stays(pipeline: PipelineFolders, tmp_path: Path) -> None:
    build_evaluation(CONFIG, pipeline, tmp_path / "out")
    before = sha256_of_path(tmp_path / "out")
    (pipeline.sweeps["match"] / "result.json").unlink()
    with pytest.raises(ArtifactError, match="result.json is missing"):
        build_evaluation(CONFIG, pipeline, tmp_path / "out")
    assert sha256_of_path(tmp_path / "out") == before


def test_a_checkpoint_that_was_fine_tuned_as_it_is_has_a_report_of_its_tasks(
    pipeline: PipelineFolders, tmp_path: Path
) -> None:
    content = {"taken_from": "ada/encoder", "metrics": {"num_parameters": 1_400_000}}
    write_manifest(pipeline.pretrain, kind="pretrain", format_version=1, content=content)
    (pipeline.pretrain / "metrics.jsonl").unlink()
    alone = dataclasses.replace(pipeline, corpus=None, tokenizer=None, examples=None)
    figures = build_evaluation(CONFIG, alone, tmp_path / "out")
    words = page_of(tmp_path / "out").words
    assert "ada/encoder, an encoder with 1.4 million parameters" in words and "nothing was pretrained" in words
    assert "Task: library" in words and "Learning to read" not in words and "What it read" not in words
    assert rows_of(tmp_path / "out" / "curves" / "mlm_loss.csv") == []
    assert "library/encoder/accuracy_mean" in figures and "val/mlm_loss" not in figures
