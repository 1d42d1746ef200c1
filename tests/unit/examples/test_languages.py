"""In a corpus of several languages, the random second segment of a pair has the language of the first."""

from __future__ import annotations

import dataclasses
import random
from itertools import cycle
from pathlib import Path

import pytest

from bertline.corpus.document import Document, copy_id
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.examples.build import build_examples
from bertline.examples.config import ExamplesConfig
from bertline.examples.store import Example, ExampleStore
from bertline.foundation.files import sha256_of_path
from bertline.foundation.manifests import write_manifest
from bertline.tokenization.tokenizer import Tokenizer
from corpora import ShardWriter
from engines import local

WORDS_OF = {
    "xx": [f"{first}{vowel}{last}" for first in "bd" for vowel in "aeiou" for last in "lrst"],
    "yy": [f"{first}{vowel}{last}" for first in "fg" for vowel in "aeiou" for last in "lrst"],
    "zz": [f"{first}{vowel}{last}" for first in "kl" for vowel in "aeiou" for last in "lrst"],
}


def documents(labels: list[str]) -> list[Document]:
    """Documents of words that only their language has; every fifth has no tokens at all."""
    rng = random.Random(0)
    made = []
    for number, label in enumerate(labels):
        words = WORDS_OF[label.partition("[")[2][:2]]
        sentences = tuple(" ".join(rng.choices(words, k=rng.randint(2, 8))) for _ in range(rng.randint(2, 6)))
        made.append(Document(f"{label}/{number}", "", ("\x00",) if number % 5 == 4 else sentences))
    return made


def corpus(folder: Path, labels: list[str], *, source: str = "sources") -> Path:
    return written(folder, documents(labels), source=source)


def written(folder: Path, made: list[Document], *, source: str = "sources") -> Path:
    folder.mkdir()
    shards = {}
    for split in ("train", "validation"):
        writer = ShardWriter(folder, split, shard_documents=25)
        for document in made:
            writer.write(document)
        shards[split] = writer.close()
    content = {"shards": shards, "source": source}
    write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    return folder


def languages_of(example: Example, tokenizer: Tokenizer) -> list[set[str]]:
    """Return the languages of the words of both segments."""
    tokens = tokenizer.tokens(example.input_ids.tolist())
    return [
        {name for name, words in WORDS_OF.items() for token, of in zip(tokens, example.token_type_ids, strict=True)
         if of == segment and token in words}
        for segment in (0, 1)
    ]  # fmt: skip


def pairs(folder: Path) -> list[Example]:
    store = ExampleStore.open(folder, "train", 16)
    return [store[number] for number in range(len(store))]


@pytest.fixture
def tokenizer(tokenizer_folder: Path) -> Tokenizer:
    return Tokenizer.load(tokenizer_folder)


def test_both_segments_have_one_language_and_all_its_documents_are_drawn_from(
    tmp_path: Path, tokenizer_folder: Path, tokenizer: Tokenizer, config: ExamplesConfig
) -> None:
    # Two sources of one language, and languages in turns, as in a table with a column of languages.
    labels = [label for label, _ in zip(cycle(["a[xx]", "a[yy]", "b[xx]"]), range(60), strict=False)]

    build_examples(
        config, tokenizer_folder, corpus(tmp_path / "c", labels), tmp_path / "out", **local(tmp_path / "out")
    )

    found = pairs(tmp_path / "out")
    assert 0.3 < sum(pair.next_sentence_label for pair in found) / len(found) < 0.7
    for pair in found:
        first, second = languages_of(pair, tokenizer)
        assert first == second and len(first) == 1


def test_the_number_of_workers_changes_no_byte(
    tmp_path: Path, tokenizer_folder: Path, config: ExamplesConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.examples.encoding._BATCH_CHARACTERS", 500)
    folder = corpus(tmp_path / "c", ["a[xx]", "b[yy]", "c[xx]"] * 20)
    for workers in (1, 4):
        build_examples(
            config, tokenizer_folder, folder, tmp_path / str(workers), **local(tmp_path / str(workers), workers)
        )
    assert sha256_of_path(tmp_path / "1") == sha256_of_path(tmp_path / "4")


def with_copies(labels: list[str], copies: int) -> list[Document]:
    """Documents whose words no other one has, each there several times, as a weight makes them; the last has none."""
    words = [word for of_language in WORDS_OF.values() for word in of_language]
    made = []
    for number, label in enumerate(labels):
        own = words[number * 6 : number * 6 + 6]
        document = Document(f"{label}/{number}", "", ("\x00",) if number == len(labels) - 1 else (" ".join(own),) * 20)
        made += [document, *(dataclasses.replace(document, id=copy_id(document.id, n)) for n in range(2, copies + 1))]
    return made


@pytest.mark.parametrize("labels", [["a"] * 8, ["a[xx]", "a[yy]"] * 4, ["a[xx]"] + ["a[yy]"] * 7])
def test_a_random_segment_is_never_of_a_copy_of_the_document_and_of_every_other_one(
    tmp_path: Path, tokenizer_folder: Path, tokenizer: Tokenizer, config: ExamplesConfig, labels: list[str]
) -> None:
    always = dataclasses.replace(config, random_next_prob=1.0)
    folder = written(tmp_path / "c", with_copies(labels, 5))

    build_examples(always, tokenizer_folder, folder, tmp_path / "out", **local(tmp_path / "out"))

    drawn: dict[frozenset[str], set[frozenset[str]]] = {}
    documents_of = {word: frozenset(one.sentences[0].split()) for one in with_copies(labels, 1)
                    for word in one.sentences[0].split()}  # fmt: skip
    for pair in pairs(tmp_path / "out"):
        tokens = tokenizer.tokens(pair.input_ids.tolist())
        first, second = (
            {documents_of[token] for token, of in zip(tokens, pair.token_type_ids, strict=True)
             if of == segment and token in documents_of}
            for segment in (0, 1)
        )  # fmt: skip
        assert len(first) == len(second) == 1
        drawn.setdefault(first.pop(), set()).update(second)
    assert len(drawn) == len(labels) - 1
    language = {
        frozenset(one.sentences[0].split()): label for one, label in zip(with_copies(labels, 1), labels, strict=True)
    }
    for document, others in drawn.items():
        same = {one for one in drawn if one != document and language[one] == language[document]}
        assert others == (same or set(drawn) - {document})
