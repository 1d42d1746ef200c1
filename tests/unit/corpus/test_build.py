from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.selection import split_position
from bertline.corpus.storage import read_documents
from bertline.foundation.errors import DataError, MachineError
from bertline.foundation.files import sha256_of_path
from corpora import build, manifest_of

Make = Callable[..., Any]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02d}.txt").write_text(f"Story number {number} begins. It ends.\n\nNobody knows why.")
    return folder


def test_the_headline_and_the_manifest_count_what_is_in_the_shards(
    texts: Path, text_config: Make, tmp_path: Path
) -> None:
    (texts / "copy.txt").write_text("story number 7 BEGINS. It ends.\nNobody knows why.")
    (texts / "empty.txt").write_text("")

    headline = build(text_config(), tmp_path / "out")

    manifest = manifest_of(tmp_path / "out")
    for split in ("train", "validation"):
        documents = list(read_documents(tmp_path / "out", split))
        sentences = [sentence for document in documents for sentence in document.sentences]
        assert manifest["counts"][split] == {
            "documents": len(documents),
            "sentences": len(sentences),
            "characters": sum(map(len, sentences)),
            "words": sum(len(sentence.split()) for sentence in sentences),
        }
        assert headline[f"{split}/sentences"] == len(sentences) == 3 * len(documents) > 0
    assert headline["train/documents"] + headline["validation/documents"] == 40
    assert headline["dropped_documents"] == headline["duplicate_documents"] == 1
    assert manifest["dropped"] == {"documents/duplicate": 1, "files/empty": 1}


def test_whatever_fails_the_old_corpus_stays(
    texts: Path, text_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    build(text_config(), out)
    before = sha256_of_path(out)

    def full(*arguments: object, **keywords: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"is empty: no document is left. Dropped: 40 documents/too_short.*1000"):
        build(text_config(min_document_characters=1000), out)
    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
        with pytest.raises(MachineError, match=r"train.parquet cannot be written: No space left on device"):
            build(text_config(), out)
    (texts / "39.txt").write_bytes(b"\xff\xfe\xfd")  # in the middle of the input
    for num_workers in (1, 2):
        with pytest.raises(DataError, match=r"39.txt:1: byte 0xff"):
            build(text_config(), out, num_workers)
    assert sha256_of_path(out) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_side_with_one_document_is_given_the_nearest_other_one(
    texts: Path, text_config: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sentence pairs of one document have no random second segment, which `examples` would find two stages later."""
    positions = {path.name: split_position(path.name, text_config().split_seed) for path in texts.iterdir()}
    nearest = sorted(positions, key=positions.__getitem__)
    fraction = (positions[nearest[0]] + positions[nearest[1]]) / 2

    build(text_config(validation_fraction=fraction), tmp_path / "out")

    assert {document.id for document in read_documents(tmp_path / "out", "validation")} == set(nearest[:2])
    assert len(list(read_documents(tmp_path / "out", "train"))) == 38
    said = capsys.readouterr().err
    assert "1 document fell into validation" in said and "moved there: 1 of train" in said


def test_a_single_group_cannot_be_split(text_config: Make, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "all.txt").write_text("One file holds it all.\n\nEverything is here.")

    with pytest.raises(DataError, match=r"one group \('all.txt'\).*blank_line") as raised:
        build(text_config(), tmp_path / "out")
    assert "validation_fraction" not in str(raised.value)  # 0 would leave the examples without a validation document
    build(text_config(document="blank_line"), tmp_path / "blank_line")
    unsplit = dataclasses.replace(text_config(), validation_fraction=0.0)
    assert build(unsplit, tmp_path / "out")["train/documents"] == 1
