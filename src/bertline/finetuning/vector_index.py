"""Index of vectors, searched by inner product."""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import write_atomically


class VectorIndex:
    """Exact search by inner product (the cosine, for unit vectors) with FAISS (arXiv 2401.08281); see `of`, `load`."""

    def __init__(self, index: faiss.Index) -> None:
        self._index = index

    @classmethod
    def of(cls, vectors: NDArray[np.float32]) -> VectorIndex:
        """Build the index of vectors [N, H]; N is at least 1."""
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        return cls(index)

    @classmethod
    def load(cls, path: Path) -> VectorIndex:
        """Read an index that `save` wrote.

        Raises:
            ArtifactError: The file is missing, or is not a complete FAISS index.
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
        """Write the index in the FAISS format, atomically."""
        write_atomically(path, faiss.serialize_index(self._index).tobytes())

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the vectors with the largest inner products with each query, in descending order.

        Returns:
            Indices of the vectors and their inner products, both [Q, min(k, N)].
        """
        k = min(k, len(self))
        if not len(queries):
            return np.zeros((0, k), dtype=np.int64), np.zeros((0, k), dtype=np.float32)
        scores, numbers = self._index.search(np.ascontiguousarray(queries, dtype=np.float32), k)
        return numbers, scores
