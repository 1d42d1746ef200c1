from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertline.corpus.quality.contamination import contaminated, passages, read_needles, write_needles
from bertline.corpus.quality.drops import NUM_SAMPLES
from bertline.corpus.storage import read_documents
from bertline.foundation.files import sha256_of_path
from corpora import build, drops_of

Make = Callable[..., Any]
WORDS = [f"word{number}" for number in range(2000)]


def sentence(seed: int, num_words: int) -> str:
    words = random.Random(seed).choices(WORDS, k=num_words)
    return f"{words[0].capitalize()} {' '.join(words[1:])}."


@pytest.fixture
def planted(tmp_path: Path) -> list[str]:
    """Write a corpus of 200 paragraphs, of which 60 contain a sentence of test.txt inside other text."""
    test_set = [sentence(seed, 4 + seed % 30) for seed in range(60)]
    paragraphs = [f"{sentence(1000 + number, 30)} {sentence(2000 + number, 9)}" for number in range(200)]
    for number, text in enumerate(test_set):
        head, tail = paragraphs[number * 3].split(". ", 1)
        paragraphs[number * 3] = f"{head}. «{text.upper()[:-1]}» {tail}"
    (tmp_path / "text").mkdir()
    for number in range(20):
        text = "\n\n".join(paragraphs[number * 10 : number * 10 + 10])
        (tmp_path / "text" / f"{number:02}.txt").write_text(text)
    (tmp_path / "test.txt").write_text("\n".join([*test_set, "Yes.", ""]))
    return test_set


def test_every_planted_sentence_is_found_with_one_worker_or_two(
    planted: list[str], text_config: Make, tmp_path: Path
) -> None:
    config = text_config(decontaminate=(str(tmp_path / "test.txt"),))
    build(config, tmp_path / "one")
    build(config, tmp_path / "two", 2)

    corpus = " ".join(
        part for split in ("train", "validation") for item in read_documents(tmp_path / "one", split)
        for part in item.sentences
    ).casefold()  # fmt: skip
    assert not [text for text in planted if text[:-1].casefold() in corpus]
    drops = drops_of(tmp_path / "one")
    assert drops["counts"] == {"paragraphs/contaminated": 60}
    assert len(drops["samples"]["paragraphs/contaminated"]) == NUM_SAMPLES
    assert sha256_of_path(tmp_path / "one") == sha256_of_path(tmp_path / "two")


def test_thirteen_words_in_a_row_are_enough_and_twelve_are_not(tmp_path: Path) -> None:
    long = sentence(1, 40).split()
    (tmp_path / "a.txt").write_text(" ".join(long))
    write_needles([str(tmp_path / "a.txt")], tmp_path)
    needles = read_needles(tmp_path)

    paragraphs = [["x", " ".join(long[5:17])], ["So:", " ".join(long[7:20]), "y"], [], [" ".join(long[17:20])]]

    assert contaminated(paragraphs, needles) == [1]
    assert contaminated([], needles) == []


def test_every_type_of_file_gives_its_texts(tmp_path: Path) -> None:
    rows = [{"a": "One.", "b": {"c": ["Two.", 3]}}]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps(rows[0]).encode()))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows[:1] and [{"a": "One.", "b": ["Two."]}]), tmp_path / "a.parquet")
    (tmp_path / "a.tsv").write_text('One.\tTwo. "\n')
    (tmp_path / "a.csv").write_text('One.,"Two.\n"\n')
    (tmp_path / "parts.json").write_text(json.dumps({"data": rows[:0], "annotations": [{"a": "One."}], "b": ["Two."]}))
    (tmp_path / "strings.json").write_text('["One.",\n"Two."]')
    for name in ("a.jsonl.gz", "a.json", "a.parquet", "a.tsv", "a.csv", "parts.json", "strings.json"):
        assert [text.strip(' "\n') for text in passages(tmp_path / name)] == ["One.", "Two."], name
