"""How a vocabulary fits a text, next to others."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bertline.corpus.document import Document
from bertline.corpus.storage import FORMAT_VERSION, KIND, ShardWriter
from bertline.evaluation.vocabulary_page import VocabularySurvey, fit, survey_vocabulary, write_vocabulary_page
from bertline.foundation.errors import DataError
from bertline.foundation.manifests import write_manifest
from bertline.tokenization.counting import CorpusText
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from engines import local

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ALPHABET = (*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "<", ">")
OWN = Vocabulary(tokens=(*ALPHABET, "the", "of", "enzyme", "##ase", "ribosome", "##ination"), lowercase=True)


def test_figures_weight_each_word_by_its_count() -> None:
    found = fit("own", Tokenizer(OWN), {"the": 6, "enzymes": 2, "☃": 1, "of": 1})
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
    folder.mkdir()
    counts: dict[str, dict[str, int]] = {}
    shards = {}
    for split, number in (("train", 60), ("validation", 6)):
        texts = [f"The {words[i % 40]} of the {words[(i * 3) % 40]} <script>." for i in range(number)]
        writer = ShardWriter(folder, split, shard_documents=100)
        for index, text in enumerate(texts):
            writer.write(Document(f"{split}{index}", "", (text,)))
        shards[split] = writer.close()
        counts[split] = {"documents": number, "characters": sum(map(len, texts))}
    content = {"source": "text", "counts": counts, "shards": shards}
    write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str, Vocabulary], Path]:
    def save(name: str, vocabulary: Vocabulary) -> Path:
        save_tokenizer(Tokenizer(vocabulary), tmp_path / "models" / name)
        return tmp_path / "models" / name

    return save


@pytest.fixture
def survey(corpus: Path, saved, tmp_path: Path) -> VocabularySurvey:
    other = dataclasses.replace(OWN, tokens=(*ALPHABET, "The", "cat"), lowercase=False)
    named = saved("cased", other)
    return survey_vocabulary(
        saved("own", OWN), CorpusText(corpus, **local(tmp_path)), compare=[str(named)], was_trained=False
    )


def test_others_are_measured_on_the_same_text_each_with_its_own_case(survey: VocabularySurvey) -> None:
    (given,) = survey.given
    assert given.name == "models/cased"
    assert given.words == survey.own.words
    assert given.tokens_per_word > survey.own.tokens_per_word  # "the" is cut, "The" is not
    assert {"own", "models/cased"} <= survey.trained.keys()
    assert survey.trained["own"].size == survey.own.size
    assert survey.trained["models/cased"].size == given.size
    assert survey.shared["models/cased"] == pytest.approx(1 - 2 / (len(ALPHABET) + 2 - len(SPECIAL_TOKENS)))
    assert set(survey.by_script) == {"LATIN", "CYRILLIC"}
    assert survey.by_script["CYRILLIC"].unknown_rate == 1
    assert survey.longest[:2] == [("ribosome", 0), ("##ination", 22)]
    assert survey.rarest[0] == ("enzyme", 12) and survey.num_unused > 0


def test_the_page_is_one_file_shows_text_as_text_and_has_the_same_bytes_each_time(
    survey: VocabularySurvey, tmp_path: Path
) -> None:
    pages = []
    for _ in range(2):
        write_vocabulary_page(tmp_path / "page.html", survey)
        pages.append((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    assert pages[0].count("<script") == 1  # that of the frame, for links within the page
    assert "models/cased" in pages[0]
    assert not re.search(r'(src|href)="(?!#)', pages[0])


def test_a_vocabulary_that_cannot_be_read_is_named_with_its_key(corpus: Path, saved, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tokenizer\.compare names .*/nothing, which cannot be compared with"):
        survey_vocabulary(saved("own", OWN), CorpusText(corpus, **local(tmp_path)), compare=[str(tmp_path / "nothing")])
