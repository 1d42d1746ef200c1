"""The index finds what comparing with every vector finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.finetuning.vector_index import VectorIndex
from bertline.foundation.errors import ArtifactError


def vectors(count, width, seed):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 5), st.integers(1, 80), st.integers(0, 100))
@settings(max_examples=40)
def test_search_is_exact(count, width, num_queries, k, seed):
    documents, queries = vectors(count, width, seed), vectors(num_queries, width, seed + 1)
    numbers, scores = VectorIndex.of(documents).search(queries, k)
    products = queries @ documents.T
    expected = np.sort(products, axis=1)[:, ::-1][:, :k]
    assert numbers.shape == scores.shape == (num_queries, min(k, count))
    assert np.allclose(scores, expected, atol=1e-4)
    # Which document it is: its own product is the score that is given for it; none stands twice.
    assert np.allclose(np.take_along_axis(products, numbers, axis=1), scores, atol=1e-4)
    assert all(len(set(row)) == len(row) for row in numbers.tolist())


def test_a_saved_index_gives_the_same(tmp_path):
    index, queries = VectorIndex.of(vectors(30, 8, 0)), vectors(3, 8, 1)
    index.save(tmp_path / "documents.faiss")
    loaded = VectorIndex.load(tmp_path / "documents.faiss")
    assert len(loaded) == 30
    for first, second in zip(index.search(queries, 7), loaded.search(queries, 7), strict=True):
        assert np.array_equal(first, second)


def test_what_is_no_index_is_an_error(tmp_path):
    path = tmp_path / "documents.faiss"
    with pytest.raises(ArtifactError, match=r"documents\.faiss is missing"):
        VectorIndex.load(path)
    VectorIndex.of(vectors(30, 8, 0)).save(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArtifactError, match="not a whole FAISS index"):
        VectorIndex.load(path)
