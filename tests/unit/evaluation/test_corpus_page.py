from __future__ import annotations

import re
from pathlib import Path

import pytest

from bertline.corpus.build import build_corpus
from bertline.corpus.quality.config import NearDuplicatesConfig
from bertline.corpus.quality.drops import DropSamples
from bertline.corpus.readers.text import TextCorpusConfig
from bertline.corpus.sentences.rules import RulesConfig
from bertline.demo.config import PythonDocsConfig
from bertline.evaluation.corpus_page import write_corpus_page
from bertline.evaluation.corpus_survey import survey_corpus


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


def test_the_survey_finds_stubs_long_sentences_and_scripts(built: tuple[Path, DropSamples]) -> None:
    survey = survey_corpus(built[0])

    times = dict(survey.frequent_short)
    assert times["L."] == times["Pub."] > 20
    assert len(survey.random) == 20
    assert [len(one.text) for one in survey.longest] == sorted((len(one.text) for one in survey.longest), reverse=True)
    assert survey.longest[0].text.startswith("Long word word")
    assert set(survey.scripts) == {"LATIN", "CYRILLIC"}
    assert survey.sentences == survey.words_per_sentence.total()
    assert survey.share_of_words(up_to=2) == pytest.approx(times["L."] * 2 / survey.sentences)


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


def test_an_empty_list_of_drops_is_said(built: tuple[Path, DropSamples], tmp_path: Path) -> None:
    write_corpus_page(tmp_path / "page.html", built[0], DropSamples().content())
    assert "Nothing was dropped." in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_page_is_the_same_however_many_processes_made_the_corpus_and_wherever(tmp_path: Path) -> None:
    pages = []
    for place, num_workers in (("here", 1), ("there", 3)):
        (tmp_path / place).mkdir()
        corpus, samples = build(tmp_path / place, num_workers=num_workers)
        write_corpus_page(tmp_path / place / "page.html", corpus, samples.content())
        pages.append((tmp_path / place / "page.html").read_bytes())
    assert pages[0] == pages[1]
