from __future__ import annotations

from pathlib import Path

import pytest

from bertline.corpus.document import Document
from bertline.corpus.storage import FORMAT_VERSION, KIND, read_documents
from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import write_manifest
from corpora import ShardWriter

DOCUMENTS = [Document(f"d{number}", f"g{number % 3}", (f"Sentence {number}.", "Füße 漢字.")) for number in range(25)]


def write(folder: Path, documents: list[Document], shard_documents: int) -> list[str]:
    writer = ShardWriter(folder, "train", shard_documents)
    for document in documents:
        writer.write(document)
    names = writer.close()
    shards = {"train": names, "validation": []}
    write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content={"shards": shards})
    return names


def test_documents_come_back_in_order_from_shards_of_the_given_size(tmp_path: Path) -> None:
    names = write(tmp_path, DOCUMENTS, 10)

    assert names == [f"train-0000{number}-of-00003.parquet" for number in range(3)]
    assert list(read_documents(tmp_path, "train")) == DOCUMENTS
    assert list(read_documents(tmp_path, "validation")) == []


@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_a_damaged_shard_is_named(tmp_path: Path, damage: str) -> None:
    names = write(tmp_path, DOCUMENTS, 10)
    if damage == "missing":
        (tmp_path / names[1]).unlink()
    else:
        (tmp_path / names[1]).write_bytes((tmp_path / names[1]).read_bytes()[:100])

    with pytest.raises(ArtifactError, match=r"train-00001-of-00003.parquet cannot be read.*corpus stage"):
        list(read_documents(tmp_path, "train"))
