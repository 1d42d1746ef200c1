"""The data page: samples of what was kept and dropped, and how a vocabulary fits the text, next to others."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bertline.corpus.reader import NearDuplicatesConfig
from bertline.corpus.registry import SourcesCorpusConfig
from bertline.corpus.sentences.learned import LearnedConfig
from bertline.evaluation.corpus_survey import survey_corpus
from bertline.evaluation.data_page import write_data_page
from bertline.evaluation.vocabulary_survey import VocabularySurvey, survey_vocabulary
from bertline.foundation.errors import ArtifactError, DataError
from bertline.foundation.validation import validate
from bertline.tokenization.counting import CorpusText
from bertline.tokenization.fit import cut_words, fit_of
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from corpora import build as build_corpus
from corpora import drops_of, local, write_corpus
from reading import TextCorpusConfig

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ALPHABET = (*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "<", ">")
OWN = Vocabulary(tokens=(*ALPHABET, "the", "of", "enzyme", "##ase", "ribosome", "##ination"), lowercase=True)


def text_of(corpus: Path) -> CorpusText:
    return CorpusText(corpus, **local(corpus.parent))


def page_of(corpus: Path, *, compare: tuple[str, ...] = ()) -> str:
    save_tokenizer(Tokenizer(OWN), corpus.parent / "own")
    survey = survey_vocabulary(corpus.parent / "own", text_of(corpus), compare=compare, was_trained=False)
    write_data_page(corpus.parent / "page.html", corpus, survey)
    return (corpus.parent / "page.html").read_text(encoding="utf-8")


def _cases(number: int) -> list[str]:
    return [f"все{number}и{case}" for case in range(20)]


def build(tmp_path: Path, *, num_workers: int = 1) -> Path:
    """A corpus whose sentences were split wrongly, with markup, a long sentence and things to drop."""
    (tmp_path / "text").mkdir(parents=True)
    for number in range(30):
        text = f"Pub.\n\nL.\n\nThe law number {number} <b>applies</b> & holds for {' '.join(_cases(number))} cases."
        (tmp_path / "text" / f"{number:02}.txt").write_text(text)
    (tmp_path / "text" / "40.txt").write_text("Long " + "word " * 900)
    (tmp_path / "text" / "41.txt").write_text("Short <script>.")
    copy = f"Pub.\n\nL.\n\nThe law number 29 <b>applies</b> & holds for {' '.join(_cases(29))} some cases."
    (tmp_path / "text" / "42.txt").write_text(copy)
    config = TextCorpusConfig(
        kind="text", path=str(tmp_path / "text"), document="file", document_start=None,
        encoding="utf-8", validation_fraction=0.2,
        split_seed=0, deduplicate="document", min_document_characters=20, on_undecodable="fail",
        sentences=LearnedConfig(kind="learned", abbreviations=()),
        near_duplicates=NearDuplicatesConfig(threshold=0.7, ngram=3),
    )  # fmt: skip
    build_corpus(config, tmp_path / "corpus", num_workers)
    return tmp_path / "corpus"


def test_text_is_shown_as_text_and_every_drop_with_a_sample(tmp_path: Path) -> None:
    page = page_of(build(tmp_path))
    assert page.count("<script") == 1  # that of the frame, for links within the page
    assert "Short &lt;script&gt;." in page
    assert "Too short: 1 documents" in page
    assert "Near duplicate: 1 documents" in page
    assert re.search(r"\d+% equal to \d+\.txt", page)
    assert "&lt;b&gt;applies&lt;/b&gt; &amp; holds" in page
    assert not re.search(r'(src|href)="(?!#)', re.sub("<svg.*?</svg>", "", page))  # one file


def test_the_page_is_the_same_however_many_processes_made_the_corpus_and_wherever(tmp_path: Path) -> None:
    here, there = page_of(build(tmp_path / "here")), page_of(build(tmp_path / "there", num_workers=3))
    assert here == there


def test_each_source_has_samples_of_what_was_kept_and_of_each_drop(tmp_path: Path) -> None:
    """A large source with many short documents, and small ones with one each, two of them in one language."""
    settings = {"kind": "text", "document": "line", "document_start": None, "encoding": "utf-8",
                "on_undecodable": "fail", "weight": 1.0}  # fmt: skip
    sources = {}
    for number, name in enumerate(("wiki", "novels1", "novels2")):
        (tmp_path / name).mkdir()
        size, low = (400, 60) if name == "wiki" else (40, 1)
        lines = [f"Page {index} of {name} is here. See also. It has several more words." for index in range(size)]
        short = [f"{name} {index}." for index in range(low)]
        (tmp_path / name / "a.txt").write_text("\n".join(lines + short), encoding="utf-8")
        sources[name] = {**settings, "path": str(tmp_path / name), "language": "en" if number else "de"}
    config = validate(
        SourcesCorpusConfig,
        {"kind": "sources", "language_exponent": None, "sampling_seed": 0, "validation_fraction": 0.2, "split_seed": 0,
         "deduplicate": "document", "min_document_characters": 20, "sources": sources,
         "sentences": {"kind": "learned", "abbreviations": []}},
        where="corpus",
    )  # fmt: skip
    corpus = tmp_path / "corpus"
    build_corpus(config, corpus)
    page, survey = page_of(corpus), survey_corpus(corpus)

    short_ones = drops_of(corpus)["samples"]["documents/too_short"]
    assert Counter(one["source"] for one in short_ones) == {"novels1": 1, "novels2": 1, "wiki": 3}
    assert "<h4>wiki: 60</h4>" in page and "<h4>novels1: 1</h4>" in page
    assert {label: len(part.random) for label, part in survey.parts.items()} == {
        "novels1[en]": 6, "novels2[en]": 6, "wiki[de]": 6,
    }  # fmt: skip
    assert all(one.document.startswith(f"{label}/") for label, part in survey.parts.items() for one in part.random)
    assert "<h4>novels2[en]: 6 of 120</h4>" in page
    assert ("See also.", 480) in survey.frequent_short


def test_figures_weight_each_word_by_its_count() -> None:
    found = fit_of("own", Tokenizer(OWN), cut_words(Tokenizer(OWN), {"": {"the": 6, "enzymes": 2, "☃": 1, "of": 1}}))
    assert (found.words, found.tokens, found.whole, found.unknown) == (10, 6 + 4 + 1 + 1, 7, 1)
    assert found.tokens_per_word == pytest.approx(1.2)
    assert (found.continued_rate, found.unknown_rate) == (pytest.approx(0.2), pytest.approx(0.1))
    assert found.unknown_character_rate == pytest.approx(1 / (18 + 14 + 1 + 2))
    assert found.num_used == 5  # the, of, enzyme, ##s, [UNK]
    assert found.coverage() == [(1.0, 6 / 12), (2.0, 8 / 12), (4.0, 11 / 12), (5.0, 1.0)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    stems = ("enzyme", "ribosom", "клетка", "phosphoryl", "kin", "genom", "plasmid", "operon", "codon", "exon")
    words = [f"{stem}{ending}" for ending in ("", "ase", "ic", "ination") for stem in stems]
    texts = [[f"The {words[i % 40]} of the {words[(i * 3) % 40]} <script>."] for i in range(60)]
    return write_corpus(folder, texts, texts[:6], shard_documents=100, source="text")


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str, Vocabulary], Path]:
    def save(name: str, vocabulary: Vocabulary) -> Path:
        save_tokenizer(Tokenizer(vocabulary), tmp_path / "models" / name)
        return tmp_path / "models" / name

    return save


@pytest.fixture
def survey(corpus: Path, saved) -> VocabularySurvey:
    other = dataclasses.replace(OWN, tokens=(*ALPHABET, "The", "cat"), lowercase=False)
    named = saved("cased", other)
    return survey_vocabulary(saved("own", OWN), text_of(corpus), compare=[str(named)], was_trained=False)


def test_others_are_measured_on_the_same_text_each_with_its_own_case(survey: VocabularySurvey) -> None:
    (given,) = survey.given
    assert given.name == "models/cased"
    assert given.words == survey.own.words
    assert given.tokens_per_word > survey.own.tokens_per_word  # "the" is cut, "The" is not
    assert {"own", "models/cased"} <= survey.trained.keys()
    assert survey.trained["own"].size == survey.own.size
    assert survey.trained["models/cased"].size == given.size
    assert survey.shared["models/cased"] == pytest.approx(1 - 2 / (len(ALPHABET) + 2 - len(SPECIAL_TOKENS)))
    assert survey.num_unused > 0


def test_a_corpus_without_the_samples_of_its_drops_is_refused_and_named(corpus: Path) -> None:
    with pytest.raises(ArtifactError, match="drops.json is missing"):
        page_of(corpus)


def test_a_vocabulary_that_cannot_be_read_is_named_with_its_key(corpus: Path, saved, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tokenizer\.compare names .*/nothing, which cannot be compared with"):
        survey_vocabulary(saved("own", OWN), text_of(corpus), compare=[str(tmp_path / "nothing")])
