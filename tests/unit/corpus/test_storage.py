from __future__ import annotations

from pathlib import Path

import pytest

from bertline.corpus.document import Document
from bertline.corpus.storage import read_documents
from bertline.foundation.errors import ArtifactError
from corpora import write_corpus

DOCUMENTS = [Document(f"d{number}", f"g{number % 3}", (f"Sentence {number}.", "Füße 漢字.")) for number in range(25)]


def test_documents_come_back_in_order_and_a_damaged_shard_is_named(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "corpus", DOCUMENTS, [], shard_documents=10)
    assert list(read_documents(folder, "train")) == DOCUMENTS
    assert list(read_documents(folder, "validation")) == []
    shard = folder / "train-00001-of-00003.parquet"
    shard.write_bytes(shard.read_bytes()[:100])
    for _ in ("torn", "missing"):
        with pytest.raises(ArtifactError, match=r"train-00001-of-00003.parquet cannot be read.*corpus stage"):
            list(read_documents(folder, "train"))
        shard.unlink(missing_ok=True)
