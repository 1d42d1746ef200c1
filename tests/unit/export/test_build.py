"""The export stage: folders that transformers loads, cards that say what is known, refusal of what differs."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from markdown_it import MarkdownIt
from safetensors.torch import load_file, save_file

import bertline
from bertline.encoders.loading import Head, load_model
from bertline.export.build import build_export
from bertline.export.card_sections import task_limits
from bertline.export.config import ExportConfig
from bertline.finetuning.task_file import read_task_file, write_task_file
from bertline.finetuning.task_kind import task_kind
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import sha256_of_file
from bertline.modeling.huggingface import save_model
from bertline.tokenization.tokenizer import Tokenizer
from export_inputs import EXPORT
from finetuning_inputs import table_source
from tiny import load_masked_lm, load_pretraining_model


def export(
    pipeline: Any, out: Path, config: ExportConfig = EXPORT, facts: dict[str, Any] | None = None
) -> dict[str, Any]:
    facts = pipeline.facts if facts is None else facts
    return build_export(
        config, pretrain_folder=pipeline.pretrain, sweep_folders=pipeline.sweeps, pipeline_facts=facts, out=out
    )


def test_every_folder_stands_on_its_own(pipeline: Any, tmp_path: Path) -> None:
    figures = export(pipeline, tmp_path / "out")
    assert figures["encoder/max_logits_difference"] < 1e-5
    assert figures["docs_match/max_logits_difference"] < 1e-5
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


def test_sentence_transformers_takes_the_encoder_s_vectors_as_embed_does(pipeline: Any, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    export(pipeline, tmp_path / "out")
    folder = tmp_path / "out/encoder"
    # What text-embeddings-inference reads, too.
    pooling = json.loads((folder / "1_Pooling/config.json").read_text())
    assert (pooling["pooling_mode_mean_tokens"], pooling["pooling_mode_cls_token"]) == (True, False)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    texts = ["the cafe", "a, b; c!", "the " * 100]
    ours = bertline.load(str(folder), device="cpu")
    np.testing.assert_allclose(theirs.encode(texts), ours.embed(texts), atol=1e-5)
    assert not np.allclose(ours.embed(texts), ours.embed(texts, pooling="cls"), atol=1e-2)
    assert theirs.max_seq_length == ours.max_length
    with_prompt = theirs.encode(texts, prompt_name="query")
    np.testing.assert_array_equal(with_prompt, theirs.encode(texts))


def test_an_encoder_with_the_masked_language_model_head_alone(pipeline: Any, tmp_path: Path) -> None:
    save_model(load_masked_lm(pipeline.pretrain), pipeline.pretrain)
    path = pipeline.pretrain / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["metrics"]["val/nsp_accuracy"]
    path.write_text(json.dumps({**manifest, "training": {"objective": {"kind": "mlm"}}}))
    figures = export(pipeline, tmp_path / "out", config=dataclasses.replace(EXPORT, onnx=True))
    assert figures["encoder/max_logits_difference"] < 1e-5
    assert figures["encoder/onnx_max_difference"] < 1e-5
    transformers.BertForMaskedLM.from_pretrained(tmp_path / "out/encoder")
    model = bertline.load(str(tmp_path / "out/encoder"), device="cpu")
    assert len(model.fill_mask("the [MASK] cafe.", top_k=3)[0]) == 3
    card = (tmp_path / "out/encoder/README.md").read_text()
    assert "with the masked language model, made by" in card and "next sentence" not in card


def test_the_manifest_holds_digests_and_differences(pipeline: Any, tmp_path: Path) -> None:
    figures = export(pipeline, tmp_path / "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (manifest["kind"], manifest["format_version"]) == ("export", 2)
    for name in ("encoder", "docs_match"):
        model = manifest["models"][name]
        assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "vocab.txt"} <= set(model["sha256"])
        for file, digest in model["sha256"].items():
            assert sha256_of_file(tmp_path / "out" / name / file) == digest
        assert model["max_logits_difference"] == figures[f"{name}/max_logits_difference"]


def test_both_sides_cut_texts_where_training_did(pipeline: Any, tmp_path: Path) -> None:
    export(pipeline, tmp_path / "out")
    for name, longest in (("encoder", 64), ("docs_match", 48)):
        folder = tmp_path / "out" / name
        assert bertline.load(str(folder)).max_length == longest
        assert transformers.AutoTokenizer.from_pretrained(folder).model_max_length == longest


def test_a_continued_checkpoint_keeps_its_positions(pipeline: Any, tmp_path: Path) -> None:
    pipeline.facts["params"]["pretrain"]["start_from"] = "google/some_bert"
    export(pipeline, tmp_path / "out")
    assert bertline.load(str(tmp_path / "out/encoder")).max_length == 96
    card = (tmp_path / "out/encoder/README.md").read_text()
    assert "continued from `google/some_bert`" in card
    assert front_matter(card)["base_model"] == "google/some_bert"


def test_a_card_says_that_embeddings_started_from_co_occurrences(pipeline: Any, tmp_path: Path) -> None:
    pipeline.facts["params"]["pretrain"]["initial_embeddings"] = "cooccurrence"
    export(pipeline, tmp_path / "out")
    card = (tmp_path / "out/encoder/README.md").read_text()
    assert "trained from random weights and word embeddings of co-occurrences in its text with" in card


def front_matter(card: str) -> dict[str, Any]:
    _, content, _ = card.split("---\n", 2)
    return yaml.safe_load(content)


def test_the_encoder_card_has_data_scores_baselines_and_limits(pipeline: Any, tmp_path: Path) -> None:
    export(pipeline, tmp_path / "out")
    card = (tmp_path / "out/encoder/README.md").read_text()
    assert front_matter(card) == {
        "language": "en",
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert", "fill-mask", "bertline"],
    }
    for said in (
        "# tiny-docs",
        "5,600",  # words read
        "numpy 2.0",
        "77 paragraphs: too few words",
        "3,300 steps of 64 sequences of 64",
        "bf16",
        "4.130",  # loss: the artifact's own figure, not the stage's
        "6.220",  # its baseline
        "0.621 ± 0.012",
        "0.532 ± 0.012",
        "0.563",
        "at most 64 tokens",
        "commit `0123abc`",
        "bertline.load(",
    ):
        assert said in card, said
    assert "[MASK]" not in card.split("Where it comes from")[1], (
        "the mask predictions's sentences are no fact of the model"
    )


def test_the_classifier_card_has_labels_scores_and_metadata(pipeline: Any, tmp_path: Path) -> None:
    export(pipeline, tmp_path / "out")
    card = (tmp_path / "out/docs_match/README.md").read_text()
    metadata = front_matter(card)
    assert metadata["model-index"][0]["results"][0]["metrics"] == [
        {"type": "accuracy", "value": 0.621, "name": "test mean"}
    ]
    for said in (
        "`no match`, `match`",
        "text_pair",
        "0.621 ± 0.012",
        "0.501",
        "+0.089",
        "48 tokens",
        "not been calibrated",
    ):
        assert said in card, said


def test_the_card_counts_failed_runs_and_says_which_have_no_score(pipeline: Any, tmp_path: Path) -> None:
    path = pipeline.sweeps["docs_match"] / "result.json"
    result = json.loads(path.read_text())
    encoder = result["arms"]["encoder"]
    encoder |= {"seeds": encoder["seeds"][:4], "num_diverged": 1, "num_degenerate": 1}
    path.write_text(json.dumps(result))
    export(pipeline, tmp_path / "out")
    card = (tmp_path / "out/docs_match/README.md").read_text()
    assert "over 4 seeds (1 more diverged), 8,000 training rows" in card
    failed = "1 of 5 runs of this encoder, fine-tuned, 2 of 5 runs of the same from random weights"
    assert f"Failed (the same output for every row, or diverged and not scored): {failed}." in card


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("better", None),
        ("worse", "The pretrained encoder is worse than random weights on this task."),
        ("not shown", "The pretrained encoder was not shown to beat random weights on this task."),
        (None, None),
    ],
)
def test_the_limits_say_whether_random_weights_are_better(verdict: str | None, said: str | None) -> None:
    result = {"comparison": {"verdict": verdict} if verdict else {"difference": 0.1}}
    kind = SimpleNamespace(config=SimpleNamespace(max_length=32))
    facts: Any = SimpleNamespace(
        results={"reviews": result},
        usages={"reviews": SimpleNamespace(limits=[])},
        tasks={"reviews": SimpleNamespace(kind=kind)},
        corpus={},
        start_from=None,
        start_of=lambda task: None,
    )
    limits = task_limits(facts, "reviews")
    assert ("random weights" in limits) is (said is not None)
    assert said is None or said in limits


def test_the_hub_accepts_the_metadata(pipeline: Any, tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    export(pipeline, tmp_path / "out")
    data = ModelCard.load(tmp_path / "out/docs_match/README.md").data
    assert data.eval_results[0].metric_value == 0.621
    assert data.pipeline_tag == "text-classification"


def test_a_card_without_facts_says_what_is_known_and_no_more(pipeline: Any, tmp_path: Path) -> None:
    shutil.rmtree(pipeline.sweeps["docs_match"])
    (pipeline.pretrain / "manifest.json").unlink()
    bare = type(pipeline)(pipeline.pretrain, {}, {})
    export(bare, tmp_path / "out")
    card = (tmp_path / "out/encoder/README.md").read_text()
    assert "2 layers, hidden size 16" in card
    for absent in ("None", "## Data", "## Training", "## Scores", "commit"):
        assert absent not in card, absent


def test_weights_that_transformers_computes_otherwise_are_not_exported(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old").write_text("stays")

    def a_little_off(folder: Path, head: Head) -> Any:
        if head != "mlm":
            return load_model(folder, head)
        model = load_pretraining_model(folder)
        with torch.no_grad():
            model.mlm_head.bias[7] += 1e-3
        return model

    monkeypatch.setattr("bertline.export.views.load_model", a_little_off)
    with pytest.raises(ArtifactError, match=r"prediction_logits differ .* Nothing was exported"):
        export(pipeline, out)
    assert [path.name for path in out.iterdir()] == ["old"]
    assert not list(tmp_path.glob(".out*"))
    looser = dataclasses.replace(EXPORT, logits_tolerance=1e-2)
    assert export(pipeline, out, looser)["encoder/max_logits_difference"] == pytest.approx(1e-3, rel=0.01)


def test_nan_weights_are_not_exported(pipeline: Any, tmp_path: Path) -> None:
    path = pipeline.pretrain / "model.safetensors"
    weights = load_file(path)
    weights["bert.pooler.dense.bias"] = torch.full_like(weights["bert.pooler.dense.bias"], torch.nan)
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ArtifactError, match=r"bert\.pooler\.dense\.bias has 16 of 16 values that are not"):
        export(pipeline, tmp_path / "out")


def test_a_tokenizer_that_transformers_reads_otherwise_is_not_exported(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: encode(self, text.replace("é", "e x")))
    with pytest.raises(ArtifactError, match="transformers cuts 'Café"):
        export(pipeline, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_task_with_the_encoder_s_name_is_refused(pipeline: Any, tmp_path: Path) -> None:
    clash = type(pipeline)(pipeline.pretrain, {"encoder": pipeline.sweeps["docs_match"]}, pipeline.facts)
    with pytest.raises(ConfigError, match="Rename the task"):
        export(clash, tmp_path / "out")


def test_a_missing_result_names_the_file(pipeline: Any, tmp_path: Path) -> None:
    (pipeline.sweeps["docs_match"] / "result.json").unlink()
    with pytest.raises(ArtifactError, match=r"result\.json is missing"):
        export(pipeline, tmp_path / "out")


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
    named = [path.relative_to(tmp_path).as_posix() for path in files if here.encode() in path.read_bytes()]
    assert named == []
    # The file still says that it came from elsewhere, and is read.
    finished = read_task_file(tmp_path / "out" / "docs_match")
    assert finished is not None and finished.kind.config.start_from == "./minilm"
    assert "Fine-tuned from another checkpoint" in (tmp_path / "out/docs_match/README.md").read_text()


def test_labels_with_marks_of_markdown_leave_the_card_whole(pipeline: Any, tmp_path: Path) -> None:
    labels = ["a`b", "<script>|x</script>\n# not a heading"]
    sweep = pipeline.sweeps["docs_match"]
    finished = read_task_file(sweep / "best")
    assert finished is not None
    model = load_model(sweep / "best", "sequence")
    save_model(model, sweep / "best", id2label=dict(enumerate(labels)))
    write_task_file(sweep / "best", task_kind(finished.kind.config, labels), {})
    result = json.loads((sweep / "result.json").read_text())
    result["arms"]["random_weights"]["title"] = "a | b <img src=x>\n\n# heading"
    (sweep / "result.json").write_text(json.dumps({**result, "labels": labels}))
    export(pipeline, tmp_path / "out")
    card = (tmp_path / "out/docs_match/README.md").read_text()
    assert "2 classes: ``a`b``, `<script>|x</script> # not a heading`." in card
    html = MarkdownIt().enable("table").render(card.split("---\n", 2)[2])
    assert "<code>a`b</code>" in html
    assert "<script>" not in html and "<img" not in html
    headings = re.findall(r"<h\d>(.*?)</h\d>", html)
    assert headings[0] == "tiny-docs-docs_match" and "heading" not in " ".join(headings)
    (row,) = (part for part in html.split("<tr>") if "<td>a | b" in part)
    assert row.count("<td") == 4


@pytest.mark.parametrize("name", ["my model", 'a"b', "a`b", "", "a/b/c", ".hidden"])
def test_a_model_name_that_could_break_code_or_registry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="model_name is"):
        dataclasses.replace(EXPORT, model_name=name)
    with pytest.raises(ValueError, match="MLflow registers no name"):
        dataclasses.replace(EXPORT, model_name="ada/encoder", register=True)
