"""`embed` of a folder of sentence-transformers: pooling, layers, length 1, maximum length and prompts are its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bertline
import tiny
from bertline.export.onnx import open_session, write_onnx
from bertline.export.views import load_view
from bertline.foundation.errors import ArtifactError

st = pytest.importorskip("sentence_transformers")
from sentence_transformers.base.modules import Dense, Normalize, Transformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402

TEXTS = ["word1 word2.", "Word3, word4? word5", "word6 " * 20, "", "find word7 [unknown]"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_encoder(
        tmp_path_factory.mktemp("encoder"), words=(*tiny.WORDS, "find", ":"), initializer_range=0.3
    )


def written(encoder: Path, folder: Path, *modules: nn.Module, **settings: Any) -> Path:
    torch.manual_seed(4)
    st.SentenceTransformer(modules=[Transformer(str(encoder)), *modules], device="cpu", **settings).save(str(folder))
    return folder


def assert_equal(folder: Path) -> bertline.LoadedModel:
    theirs = st.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    ours = bertline.load(str(folder), device="cpu")
    np.testing.assert_allclose(ours.embed(TEXTS), theirs.encode(TEXTS), atol=1e-5)
    for name in theirs.prompts:
        np.testing.assert_allclose(ours.embed(TEXTS, role=name), theirs.encode(TEXTS, prompt_name=name), atol=1e-5)
    return ours


ACTIVATIONS = (None, nn.Tanh(), nn.GELU(), nn.ReLU(), nn.Sigmoid())


@pytest.mark.parametrize("number", range(len(ACTIVATIONS)))
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_vectors_are_those_of_sentence_transformers(encoder: Path, pooling: str, number: int, tmp_path: Path) -> None:
    layers: list[nn.Module] = (
        [Dense(32, 12, activation_function=ACTIVATIONS[number], bias=number != 1)] if number else []
    )
    layers += [Dense(12, 32)] if number == 2 else []
    layers += [Normalize()] if number % 2 else []
    prompts = {"query": "find: ", "document": ""} if number else {}
    default = "query" if number == 3 else None
    folder = written(
        encoder, tmp_path / "a", Pooling(32, pooling), *layers, prompts=prompts, default_prompt_name=default
    )
    ours = assert_equal(folder)
    assert ours.embed([]).shape == (0, ours.embed(TEXTS).shape[1])
    raw = bertline.load(str(encoder), device="cpu")
    for chosen in ("mean", "cls"):  # by hand: the states of the encoder, as they are
        np.testing.assert_array_equal(ours.embed(TEXTS, pooling=chosen), raw.embed(TEXTS, pooling=chosen))


@pytest.mark.parametrize("layers", [[], [Normalize()], [Dense(32, 12), Normalize()]], ids=["", "normal", "dense"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_the_second_output_of_onnx_is_the_vector_of_a_text(
    encoder: Path, pooling: str, layers: list[nn.Module], tmp_path: Path
) -> None:
    folder = written(encoder, tmp_path / "a", Pooling(32, pooling), *layers)
    write_onnx(load_view(folder, "BertModel"), tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx")
    assert [each.name for each in session.get_outputs()] == ["last_hidden_state", "sentence_embedding"]
    theirs = st.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    for texts in (TEXTS, TEXTS[3:]):
        inputs = theirs.tokenizer(texts, padding=True, truncation=True, max_length=theirs.max_seq_length)
        read = {each.name: inputs[each.name] for each in session.get_inputs()}
        (vectors,) = session.run(["sentence_embedding"], read)
        np.testing.assert_allclose(vectors, theirs.encode(texts), atol=1e-5)
        np.testing.assert_allclose(vectors, bertline.load(str(folder), device="cpu").embed(texts), atol=1e-5)


def change(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))


@pytest.mark.parametrize("length", [5, 9, 16])
def test_old_folders_with_a_maximum_length_and_lower_case_are_read(encoder: Path, length: int, tmp_path: Path) -> None:
    folder = written(encoder, tmp_path / "a", Pooling(32, "max"), Normalize())
    change(folder / "tokenizer_config.json", do_lower_case=False, model_max_length=12)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length, "do_lower_case": True}))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    flags = dict.fromkeys(("cls_token", "mean_sqrt_len_tokens", "lasttoken", "weightedmean_tokens"), False)
    flags = {
        f"pooling_mode_{name}": value for name, value in {**flags, "mean_tokens": True, "max_tokens": False}.items()
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **flags}))
    ours = assert_equal(folder)
    assert ours.text_vectors(TEXTS)[1] == (3 if length == 5 else 1) and ours.max_length == 12
    (folder / "sentence_bert_config.json").rename(folder / "sentence_roberta_config.json")
    assert_equal(folder)


def test_search_reads_queries_and_documents_with_their_prompts(encoder: Path, tmp_path: Path) -> None:
    prompts = {"query": "find: word1 ", "document": "word9 "}
    folder = written(encoder, tmp_path / "a", Pooling(32, "cls"), Normalize(), prompts=prompts)
    theirs, ours = st.SentenceTransformer(str(folder), device="cpu"), bertline.load(str(folder), device="cpu")
    scores = theirs.encode(TEXTS[:3], prompt_name="query") @ theirs.encode(TEXTS[:3], prompt_name="document").T
    for row, hits in zip(scores, ours.search(TEXTS[:3], TEXTS[:3], top_k=3), strict=True):
        np.testing.assert_allclose([hit.score for hit in hits], sorted(row, reverse=True), atol=1e-5)


def modules_with(folder: Path, number: int, **changes: Any) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[number] |= changes
    (folder / "modules.json").write_text(json.dumps(modules))


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "module": (lambda f: modules_with(f, 3, type="sentence_transformers.models.LSTM"), r"names .*LSTM; bertline"),
    "own code": (lambda f: modules_with(f, 1, type="custom_st.Pooling"), r"names .*, custom_st\.Pooling,"),
    "order": (lambda f: modules_with(f, 0, type="sentence_transformers.models.Normalize"), "in this order"),
    "place": (lambda f: modules_with(f, 2, path="../2_Dense"), r"the paths of its modules are .*\.\./2_Dense"),
    "encoder below": (lambda f: modules_with(f, 0, path="0_BERT"), "expected the encoder at the top of the folder"),
    "no list": (lambda f: (f / "modules.json").write_text("{}"), "holds a dict, expected a list"),
    "no objects": (lambda f: (f / "modules.json").write_text("[1, 2]"), "bertline computes Transformer"),
    "pooling": (lambda f: change(f / "1_Pooling/config.json", pooling_mode="lasttoken"), "the pooling is lasttoken"),
    "weighted": (lambda f: (f / "1_Pooling/config.json").write_text('{"pooling_mode_weightedmean_tokens": true}'),
                 "pooling_mode_weightedmean_tokens is True"),
    "prompt": (lambda f: change(f / "1_Pooling/config.json", include_prompt=False), "include_prompt is False"),
    "residual": (lambda f: change(f / "2_Dense/config.json", use_residual=True), "use_residual is True"),
    "input": (lambda f: change(f / "2_Dense/config.json", module_input_name="token_embeddings"), "_input_name is"),
    "activation": (lambda f: change(f / "2_Dense/config.json", activation_function="os.system"), "is os.system"),
    "sizes": (lambda f: change(f / "2_Dense/config.json", out_features=10**12), "has weights of the shapes"),
    "pickle": (lambda f: (f / "2_Dense/model.safetensors").rename(f / "2_Dense/pytorch_model.bin"), "s is missing"),
    "torn": (lambda f: (f / "2_Dense/model.safetensors").write_bytes(b"12"), "not a whole safetensors file"),
    "length": (lambda f: change(f / "sentence_bert_config.json", max_seq_length="8"), "max_seq_length is '8'"),
    "encoder's task": (lambda f: change(f / "sentence_bert_config.json", transformer_task="x"), "transformer_task is"),
    "default": (lambda f: change(f / "config_sentence_transformers.json", default_prompt_name="x"), "none of its"),
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(encoder, tmp_path_factory.mktemp("whole") / "a", Pooling(32, "cls"), Dense(32, 8), Normalize())


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_computed_is_refused_by_name(whole: Path, name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "a"))
    damage, message = HOSTILE[name]
    damage(folder)
    with pytest.raises(ArtifactError, match=message):
        bertline.load(str(folder), device="cpu")
