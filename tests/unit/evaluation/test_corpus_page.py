from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from bertline.corpus.build import build_corpus
from bertline.corpus.quality.drops import DropSamples
from bertline.corpus.reader import NearDuplicatesConfig
from bertline.corpus.readers.text import TextCorpusConfig
from bertline.corpus.registry import SourcesCorpusConfig
from bertline.corpus.sentences.rules import RulesConfig
from bertline.demo.config import PythonDocsConfig
from bertline.evaluation.corpus_page import write_corpus_page
from bertline.foundation.validation import validate
from no_packages import NO_PACKAGES


def _cases(number: int) -> list[str]:
    return [f"все{number}и{case}" for case in range(20)]


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, DropSamples]:
    """A corpus whose sentences were split wrongly, with markup, a long sentence and things to drop."""
    return build(tmp_path, num_workers=1)


def build(tmp_path: Path, *, num_workers: int) -> tuple[Path, DropSamples]:
    (tmp_path / "text").mkdir()
    for number in range(30):
        text = f"Pub.\n\nL.\n\nThe law number {number} <b>applies</b> & holds for {' '.join(_cases(number))} cases."
        (tmp_path / "text" / f"{number:02}.txt").write_text(text)
    (tmp_path / "text" / "40.txt").write_text("Long " + "word " * 900)
    (tmp_path / "text" / "41.txt").write_text("Short <script>.")
    copy = f"Pub.\n\nL.\n\nThe law number 29 <b>applies</b> & holds for {' '.join(_cases(29))} some cases."
    (tmp_path / "text" / "42.txt").write_text(copy)
    config = TextCorpusConfig(
        kind="text", path=str(tmp_path / "text"), document="file", document_start=None, on_markup="fail",
        encoding="utf-8", validation_fraction=0.2,
        split_seed=0, deduplicate="document", min_document_characters=20, on_undecodable="fail", shard_documents=10,
        sentences=RulesConfig(kind="rules", headings="stay"),
        near_duplicates=NearDuplicatesConfig(threshold=0.7, ngram=3),
    )  # fmt: skip
    samples = DropSamples()
    packages = PythonDocsConfig(packages=(None,), held_out_fraction=0.1, split_seed=0)  # type: ignore[arg-type]
    build_corpus(config, packages, tmp_path / "corpus", num_workers=num_workers, samples=samples)
    return tmp_path / "corpus", samples


def test_the_page_shows_text_as_text_and_every_drop_with_a_sample(
    built: tuple[Path, DropSamples], tmp_path: Path
) -> None:
    corpus, samples = built
    write_corpus_page(tmp_path / "page.html", corpus, samples.content())
    first = (tmp_path / "page.html").read_text(encoding="utf-8")
    write_corpus_page(tmp_path / "page.html", corpus, samples.content())

    assert (tmp_path / "page.html").read_text(encoding="utf-8") == first
    assert first.count("<script") == 1  # that of the frame, for links within the page
    assert "Short &lt;script&gt;." in first
    assert "Too short: 1 documents" in first
    assert "Near duplicate: 1 documents" in first
    assert re.search(r"\d+% equal to \d+\.txt", first)
    assert "&lt;b&gt;applies&lt;/b&gt; &amp; holds" in first
    assert not re.search(r'(src|href)="(?!#)', first)  # one file


def test_the_page_is_the_same_however_many_processes_made_the_corpus_and_wherever(tmp_path: Path) -> None:
    pages = []
    for place, num_workers in (("here", 1), ("there", 3)):
        (tmp_path / place).mkdir()
        corpus, samples = build(tmp_path / place, num_workers=num_workers)
        write_corpus_page(tmp_path / place / "page.html", corpus, samples.content())
        pages.append((tmp_path / place / "page.html").read_bytes())
    assert pages[0] == pages[1]


def build_of_several(tmp_path: Path, *, num_workers: int = 1, sources: int = 3) -> tuple[Path, DropSamples]:
    """A large source with many short documents, and small ones with one each, two of them in one language."""
    settings = {"kind": "text", "document": "line", "document_start": None, "encoding": "utf-8", "on_markup": "fail",
                "on_undecodable": "fail", "weight": 1.0}  # fmt: skip
    given = {}
    for number, name in enumerate(["wiki", *(f"novels{index}" for index in range(1, sources))]):
        (tmp_path / name).mkdir(parents=True)
        size, low = (400, 60) if name == "wiki" else (40, 1)
        lines = [f"Page {index} of {name} is here. See also. It has several more words." for index in range(size)]
        short = [f"{name} {index}." for index in range(low)]
        (tmp_path / name / "a.txt").write_text("\n".join(lines + short), encoding="utf-8")
        given[name] = {**settings, "path": str(tmp_path / name), "language": "en" if number else "de"}
    config = validate(
        SourcesCorpusConfig,
        {"kind": "sources", "language_exponent": None, "sampling_seed": 0, "validation_fraction": 0.2, "split_seed": 0,
         "deduplicate": "document", "min_document_characters": 20, "shard_documents": 30, "sources": given,
         "sentences": {"kind": "rules", "headings": "stay"}},
        where="corpus",
    )  # fmt: skip
    samples = DropSamples()
    build_corpus(config, NO_PACKAGES, tmp_path / "corpus", num_workers=num_workers, samples=samples)
    return tmp_path / "corpus", samples


def test_each_source_has_samples_of_what_was_kept_and_of_each_drop(tmp_path: Path) -> None:
    corpus, samples = build_of_several(tmp_path)
    survey = write_corpus_page(tmp_path / "page.html", corpus, samples.content())
    page = (tmp_path / "page.html").read_text(encoding="utf-8")

    short = samples.content()["samples"]["documents/too_short"]
    assert Counter(one["source"] for one in short) == {"novels1": 1, "novels2": 1, "wiki": 3}
    assert samples.content()["by_source"]["wiki"] == {"documents/too_short": 60}
    assert "<h4>wiki: 60</h4>" in page and "<h4>novels1: 1</h4>" in page
    assert {label: len(part.random) for label, part in survey.parts.items()} == {
        "novels1[en]": 6, "novels2[en]": 6, "wiki[de]": 6,
    }  # fmt: skip
    assert all(one.document.startswith(f"{label}/") for label, part in survey.parts.items() for one in part.random)
    assert "<h4>novels2[en]: 6 of 120</h4>" in page
