"""Sets of `few_labels.py`: rows to draw from, and rows of the test, from public files."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""Its `text` (or the list of its `words`, with their `tags`), for pairs `text_pair`, and its `label`."""
_NUM_ARTICLES = 8
_NOVELS = {
    "Dickens": ("Oliver_1839", "Expectations_1861"),
    "Doyle": ("Hound_1902", "Lost_1912"),
    "Conrad": ("Almayer_1895", "Rover_1923"),
    "Kipling": ("Captains_1896", "Kim_1901"),
    "Woolf": ("Night_1919", "Years_1937"),
}
"""An author's novels: one to learn from, one for the test."""
_PASSAGE_WORDS = 60
_LANGUAGES = ("cat", "glg", "ita", "por", "spa")


@dataclass(frozen=True, kw_only=True)
class Set:
    """A set of labelled rows."""

    rows: Callable[[Path, str], Iterable[Row]]
    """Rows of `train` or `test` in the data folder."""
    metric: str = "accuracy"
    sizes: tuple[int, ...] = (8, 16, 64)
    """Numbers of rows to learn from: of each class where the metric is accuracy."""
    is_unseen: bool = False
    """Whether no choice of bertline's was made in view of its test rows."""


def draw(name: str, data: Path, size: int, number: int, num_test: int) -> tuple[list[Row], list[Row]]:
    """Return drawn train rows, of which a smaller size has the first ones, and test rows, equal for all draws.

    No text is there twice: neither in one split nor in both.
    """
    texts: set[str] = set()
    test = list(_new(SETS[name].rows(data, "test"), texts))
    random.Random(f"{name} test").shuffle(test)
    train = list(_new(SETS[name].rows(data, "train"), texts))
    random.Random(f"{name} {number}").shuffle(train)
    counts: dict[str, int] = {}
    drawn = []
    for row in train:
        label = row["label"] if SETS[name].metric == "accuracy" else ""
        counts[label] = counts.get(label, 0) + 1
        if counts[label] <= size:
            drawn.append(row)
    return drawn, test[:num_test]


def _new(rows: Iterable[Row], texts: set[str]) -> Iterator[Row]:
    for row in rows:
        text = " ".join((row["text"] + " " + row.get("text_pair", "")).lower().split())
        if text not in texts:
            texts.add(text)
            yield row


def _trec(data: Path, split: str) -> Iterator[Row]:
    for line in (data / f"trec/{split}.txt").read_text(encoding="latin-1").splitlines():
        label, text = line.split(" ", 1)
        yield {"text": text, "label": label.split(":")[0]}


def _sst2(data: Path, split: str) -> Iterator[Row]:
    """GLUE's test has no labels."""
    for row in _table(data / f"glue/SST-2/{'train' if split == 'train' else 'dev'}.tsv"):
        yield {"text": row["sentence"].strip(), "label": row["label"]}


def _sick(data: Path, split: str) -> Iterator[Row]:
    """Pairs: does the second sentence follow from the first, contradict it, or neither?"""
    for row in _table(data / f"sick/SICK_{'train' if split == 'train' else 'test_annotated'}.txt"):
        yield {"text": row["sentence_A"], "text_pair": row["sentence_B"], "label": row["entailment_judgment"]}


def _genres(data: Path, split: str) -> Iterator[Row]:
    """Sentences of UD English EWT: from answers, mail, newsgroups, reviews or weblogs? No document is in both."""
    genre = ""
    with (data / f"ud_english_ewt/en_ewt-ud-{split}.conllu").open(encoding="utf-8") as lines:
        for line in lines:
            name, _, value = line.strip().partition(" = ")
            if name == "# sent_id":
                genre = value.split("-")[0]
            elif name == "# text":
                yield {"text": value, "label": genre}


def _topics(data: Path, split: str) -> Iterator[Row]:
    """Questions of SQuAD: which of eight articles are they about? Every second paragraph is for the test."""
    path = data / "squad_share/squad-v1.1-dev-32articles.json"
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    for article in sorted(articles, key=lambda one: (-len(one["paragraphs"]), one["title"]))[:_NUM_ARTICLES]:
        for paragraph in article["paragraphs"][split == "test" :: 2]:
            yield from ({"text": one["question"], "label": article["title"]} for one in paragraph["qas"])


def _authors(data: Path, split: str) -> Iterator[Row]:
    """Passages of novels: who wrote them? The test has other novels of the authors."""
    for author, novels in _NOVELS.items():
        path = data.parent / f"corpora/novels/{author}_{novels[split == 'test']}.txt.gz"
        words = gzip.decompress(path.read_bytes()).decode("utf-8").split()
        for first in range(0, len(words), _PASSAGE_WORDS):
            yield {"text": " ".join(words[first : first + _PASSAGE_WORDS]), "label": author}


def _languages(data: Path, split: str) -> Iterator[Row]:
    """Sentences of Tatoeba: Catalan, Galician, Italian, Portuguese or Spanish? Every second one is for the test."""
    for language in _LANGUAGES:
        path = data.parent / f"corpora/tatoeba/tatoeba.{language}-eng.{language}"
        sentences = path.read_text(encoding="utf-8").splitlines()
        yield from ({"text": text, "label": language} for text in sentences[split == "test" :: 2])


def _mrpc(data: Path, split: str) -> Iterator[Row]:
    """Pairs of sentences from news: do they say the same?"""
    for row in _table(data / f"glue/MRPC/msr_paraphrase_{split}.txt"):
        yield {"text": row["#1 String"], "text_pair": row["#2 String"], "label": row["Quality"]}


def _wnut17(data: Path, split: str) -> Iterator[Row]:
    text = (data / "wnut17" / {"train": "wnut17train.conll", "test": "emerging.test.annotated"}[split]).read_text(
        "utf-8"
    )
    for sentence in "\n".join(line.strip() for line in text.splitlines()).split("\n\n"):
        pairs = [line.split("\t") for line in sentence.splitlines() if line]
        if pairs:
            words, tags = zip(*pairs, strict=True)
            yield {"text": " ".join(words), "words": words, "tags": tags}


def _stsb(data: Path, split: str) -> Iterator[Row]:
    for line in (data / f"glue/STS-B/sts-{split}.csv").read_text(encoding="utf-8").splitlines():
        fields: Sequence[str] = line.split("\t")
        yield {"text": fields[5], "text_pair": fields[6], "label": float(fields[4])}


def _table(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        yield from csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)


SETS = {
    "trec": Set(rows=_trec),
    "sst2": Set(rows=_sst2),
    "genres": Set(rows=_genres),
    "topics": Set(rows=_topics),
    "sick": Set(rows=_sick),
    "authors": Set(rows=_authors, is_unseen=True),
    "languages": Set(rows=_languages),
    "mrpc": Set(rows=_mrpc),
    "wnut17": Set(rows=_wnut17, metric="f1", sizes=(50, 200)),
    "stsb": Set(rows=_stsb, metric="pearson", sizes=(50, 200)),
}
