"""Every kind of task out of the door: verified folders, ONNX files, sentence-transformers, cards whose code runs."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import yaml
from huggingface_hub import ModelCard

import bertline
from bertline.encoding.sequences import encode_texts
from bertline.export.build import build_export
from bertline.export.onnx import FP32, INT8, INT8_VNNI, export_onnx
from bertline.foundation.errors import ArtifactError
from bertline.tokenization.tokenizer import Tokenizer
from export_inputs import EXPORT, export_finished
from finished_tasks import KINDS, MAX_LENGTH, Finished, finish

ONNX = dataclasses.replace(EXPORT, onnx=True, int8="vnni", int8_min_agreement=0.0, measure_latency=True)


@dataclass(frozen=True)
class Exported:
    """All kinds, exported together."""

    folder: Path
    finished: dict[str, Finished]
    manifest: dict[str, Any]
    figures: dict[str, Any]

    def card(self, name: str) -> str:
        return (self.folder / name / "README.md").read_text()


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine, threads that wait for each other take most of a tiny model's time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    root = tmp_path_factory.mktemp("line")
    finished = {name: finish(name, root / name) for name in KINDS}
    figures = export_finished(ONNX, finished, root)
    manifest = json.loads((root / "out" / "manifest.json").read_text())
    return Exported(root / "out", finished, manifest, figures)


@pytest.mark.parametrize("name", KINDS)
def test_the_exported_folder_predicts_what_the_sweeps_does(exported: Exported, name: str) -> None:
    each = exported.finished[name]
    ours, theirs = (bertline.load(str(folder), device="cpu") for folder in (each.folder, exported.folder / name))
    inputs: dict[str, tuple[Any, ...]] = {
        "question_answering": (["word1"], ["word2 word3 word4"]),
        "reranking": (["word1"], [["word2", "word3"]]),
        "retrieval": (["word1"], ["word2", "word3"]),
        **dict.fromkeys(("linear", "cosine", "classification", "marked"), (["word1 word2."], ["word3 word9."])),
    }
    given = inputs.get(name, (["word1 word2.", "word3 word9."],))
    assert theirs.predict(*given) == ours.predict(*given)
    assert theirs.max_length == MAX_LENGTH
    assert (exported.folder / name / "tokenizer.json").is_file()  # other libraries read it; theirs has vocab.txt alone


def test_weights_of_the_file_for_vnni_have_all_8_bits_and_those_of_the_other_7(exported: Exported) -> None:
    largest = {}
    for file in (INT8, INT8_VNNI):
        weights = onnx.load(exported.folder / "encoder" / file).graph.initializer
        values = [onnx.numpy_helper.to_array(each) for each in weights if each.data_type == onnx.TensorProto.INT8]
        largest[file] = max(int(np.abs(each.astype(int)).max()) for each in values if each.ndim == 2)
    assert largest == {INT8: 64, INT8_VNNI: 127}
    with pytest.raises(ValueError, match="int8 is vnni and onnx is false"):
        dataclasses.replace(ONNX, onnx=False)


def made_onnx(exported: Exported, folder: Path, **changes: Any) -> Any:
    """Make the ONNX files of a classifier's copy in a folder."""
    shutil.copytree(exported.finished["classification"].folder, folder, dirs_exist_ok=True)
    sequences = encode_texts(["word1", "word2 word3"], None, Tokenizer.load(folder), max_length=8)
    config = dataclasses.replace(ONNX, measure_latency=False, **changes)
    return export_onnx(config, folder, "BertForSequenceClassification", sequences, max_length=8)


def test_an_int8_file_that_decides_otherwise_is_left_out(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.export.onnx.write_int8", _broken_int8)
    told = made_onnx(exported, tmp_path, int8_min_agreement=1.0)
    assert set(told["files"]) == {"onnx"}
    assert [file["file"] for file in told["refused"]] == [INT8.as_posix(), INT8_VNNI.as_posix()]
    assert max(file["agreement"] for file in told["refused"]) < 1
    assert [(tmp_path / file).exists() for file in (FP32, INT8, INT8_VNNI)] == [True, False, False]
    assert capsys.readouterr().err.count("is left out") == 2


def _broken_int8(fp32: Path, int8: Path, **_: Any) -> None:
    """A classifier that says the opposite."""
    model = onnx.load(fp32)
    for weight in model.graph.initializer:
        if weight.name.endswith("classifier.weight"):
            values = -onnx.numpy_helper.to_array(weight)
            weight.CopyFrom(onnx.numpy_helper.from_array(values.copy(), weight.name))
    onnx.save(model, int8)


def test_an_onnx_file_that_computes_something_else_is_refused(exported: Exported, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"export.onnx_tolerance = 0e\+00. Nothing was exported"):
        made_onnx(exported, tmp_path, onnx_tolerance=0.0)


@pytest.mark.parametrize("name", ["cosine", "retrieval"])
def test_sentence_transformers_gives_the_vectors_of_embed(exported: Exported, name: str) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = exported.folder / name
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    ours = bertline.load(str(folder), device="cpu")
    texts = ["word1 word2.", "Word3, word4?", "word5 " * 40, "", "Ünknown"]
    np.testing.assert_allclose(theirs.encode(texts), ours.embed(texts), atol=1e-5)
    assert theirs.max_seq_length == MAX_LENGTH
    assert theirs.similarity_fn_name == "cosine"
    if name == "retrieval":
        texts = [text for text in texts if len(text) < 40]  # a query is cut earlier
        for role in ("query", "document"):
            found = theirs.encode(texts, prompt_name=role)
            np.testing.assert_allclose(found, ours.embed(texts, role=role), atol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*KINDS, "encoder"])
def test_a_card_is_complete_and_its_code_runs(exported: Exported, name: str) -> None:
    card = exported.card(name)
    title = "tiny-docs" if name == "encoder" else f"tiny-docs-{name}"
    blocks = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        assert f'"{title}"' in block
        code = block.replace(f'"{title}"', repr(str(exported.folder / name)))
        exec(compile(code, f"{name}/README.md", "exec"), {})
    metadata = ModelCard(card).data.to_dict()
    assert "bertline" in metadata["tags"]
    assert metadata["library_name"] == ("sentence-transformers" if name in ("cosine", "retrieval") else "transformers")
    if name != "encoder":
        assert yaml.safe_load(card.split("---\n", 2)[1])["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.42
    assert "`onnx/model_int8.onnx`" in card and "ms, batch of 32" in card
    assert "None" not in card.replace("top_k=None", "")


def test_folders_are_the_same_each_time_but_for_the_card(exported: Exported, tmp_path: Path) -> None:
    each = exported.finished["classification"]
    sweeps = {"classification": each.folder.parent}
    pretrain = each.folder.parent.parent / "pretrain"
    build_export(ONNX, pretrain_folder=pretrain, sweep_folders=sweeps, pipeline_facts={}, out=tmp_path / "out")
    again = json.loads((tmp_path / "out" / "manifest.json").read_text())["models"]["classification"]["sha256"]
    before = exported.manifest["models"]["classification"]["sha256"]
    del again["README.md"], before["README.md"]
    assert again == before
