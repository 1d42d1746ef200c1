"""An index of vectors: which of them have the largest inner products with a query's."""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import write_atomically


class VectorIndex:
    """Exact search by inner product (of vectors of length 1: by cosine), through FAISS (arXiv 2401.08281).

    Args:
        index: Of FAISS; make one with `of` or `load`.
    """

    def __init__(self, index: faiss.Index) -> None:
        self._index = index

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> VectorIndex:
        """The index of vectors [N, H], N at least 1."""
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        return cls(index)

    @classmethod
    def load(cls, path: Path) -> VectorIndex:
        """Read an index that `save` wrote.

        Raises:
            ArtifactError: The file is missing, or is no such index.
        """
        if not path.is_file():
            raise ArtifactError(f"{path} is missing. Make the index of the collection again.")
        try:
            index = faiss.deserialize_index(np.frombuffer(path.read_bytes(), dtype=np.uint8))
        except RuntimeError as error:
            raise ArtifactError(
                f"{path} is not a whole FAISS index. Make the index of the collection again."
            ) from error
        return cls(index)

    def save(self, path: Path) -> None:
        """Write the index in FAISS's own format, whole or not at all."""
        write_atomically(path, faiss.serialize_index(self._index).tobytes())

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The best vectors for each query, the best first.

        Args:
            queries: [Q, H].
            k: How many; all there are where there are fewer.

        Returns:
            Numbers of the vectors and inner products, both [Q, min(k, N)].
        """
        k = min(k, len(self))
        if not len(queries):
            return np.zeros((0, k), dtype=np.int64), np.zeros((0, k), dtype=np.float32)
        scores, numbers = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        return numbers, scores
