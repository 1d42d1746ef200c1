"""How a vocabulary fits a text, next to others."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bertline.corpus.document import Document
from bertline.corpus.storage import FORMAT_VERSION, KIND, ShardWriter, read_documents
from bertline.evaluation.vocabulary_page import conclusion, write_vocabulary_page
from bertline.evaluation.vocabulary_survey import VocabularySurvey, fit, most_cut, survey_vocabulary
from bertline.foundation.errors import DataError
from bertline.foundation.manifests import write_manifest
from bertline.tokenization.byte_bpe import train_byte_bpe
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

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


def test_the_words_that_cost_most_come_first() -> None:
    found = most_cut(Tokenizer(OWN), {"the": 99, "enzymes": 5, "abc": 3, "ab": 5}, number=3)
    assert [(one.word, one.count, one.tokens) for one in found] == [
        ("abc", 3, ("a", "##b", "##c")),
        ("ab", 5, ("a", "##b")),
        ("enzymes", 5, ("enzyme", "##s")),
    ]


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
def survey(corpus: Path, saved) -> VocabularySurvey:
    other = dataclasses.replace(OWN, tokens=(*ALPHABET, "The", "cat"), lowercase=False)
    named = saved("cased", other)
    return survey_vocabulary(saved("own", OWN), corpus, compare=[str(named)], was_trained=False)


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


def test_a_byte_level_vocabulary_stands_beside_wordpiece_ones_that_are_named_so(corpus: Path, tmp_path: Path) -> None:
    texts = [" ".join(document.sentences) for document in read_documents(corpus, "train")]
    save_tokenizer(train_byte_bpe(texts, vocab_size=275, min_frequency=2), tmp_path / "bytes")
    cased = Vocabulary(tokens=(*ALPHABET, "of", "☂"), lowercase=False)
    save_tokenizer(Tokenizer(cased), tmp_path / "cased")
    survey = survey_vocabulary(tmp_path / "bytes", corpus, compare=[str(tmp_path / "cased")])
    assert survey.own.unknown == 0 and survey.own.words == survey.given[0].words
    assert not survey.was_trained and "own" not in survey.trained
    assert survey.trained and all(one.name.startswith("WordPiece trained here") for one in survey.trained.values())
    assert 0 < next(share for name, share in survey.shared.items() if name.endswith("cased")) < 1
    assert not {"<s>", "<mask>"} & {token for token, _ in survey.longest}
    write_vocabulary_page(tmp_path / "page.html", survey)


def test_the_answer_compares_vocabularies_of_one_size(survey: VocabularySurvey) -> None:
    def answer(tokens: int) -> str:
        here = dataclasses.replace(survey.given[0], words=100, tokens=tokens)
        given = dataclasses.replace(survey.given[0], words=100, tokens=100)
        return conclusion(dataclasses.replace(survey, given=[given], trained={given.name: here}))

    assert "15.0 % fewer tokens than with models/cased: one of its own pays" in answer(85)
    assert "5.0 % fewer tokens than with models/cased: one of its own helps a little" in answer(95)
    assert "1.0 % fewer tokens than with models/cased: it needs none" in answer(99)
    assert "4.0 % more tokens than with models/cased: it needs none" in answer(104)
    nothing = conclusion(dataclasses.replace(survey, given=[], trained={}))
    assert "tokenizer.compare=[/path/to/checkpoint]" in nothing
    too_few = conclusion(dataclasses.replace(survey, trained={}))
    assert too_few.startswith("The text has too few words for a vocabulary as large as that of models/cased")


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


def test_a_text_too_small_to_train_on_and_one_without_validation_still_have_a_page(
    corpus: Path, saved, tmp_path: Path
) -> None:
    large = dataclasses.replace(OWN, tokens=(*OWN.tokens, *(f"[unused{i}]" for i in range(900))))
    survey = survey_vocabulary(saved("large", large), corpus)
    write_vocabulary_page(tmp_path / "page.html", survey)
    assert "Nothing was named to compare with" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(one.size < 2 * len(large.tokens) for one in survey.trained.values())


def test_a_vocabulary_that_cannot_be_read_is_named_with_its_key(corpus: Path, saved, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tokenizer\.compare names .*/nothing, which cannot be compared with"):
        survey_vocabulary(saved("own", OWN), corpus, compare=[str(tmp_path / "nothing")])


@pytest.fixture
def of_several(tmp_path: Path) -> Path:
    """A corpus of three sources, two of them German, and one that has no validation text."""
    folder = tmp_path / "several"
    folder.mkdir()
    texts = {"laws[de]": "abc abd", "novels[de]": "the the the abc", "papers[en]": "enzyme of ☃ the", "tiny[fr]": "le"}
    counts: dict[str, dict[str, int]] = {}
    shards = {}
    for split, number in (("train", 9), ("validation", 2)):
        writer = ShardWriter(folder, split, shard_documents=100)
        read = [(label, text) for label, text in texts.items() if (split, label) != ("validation", "tiny[fr]")]
        for label, text in read:
            for index in range(number):
                writer.write(Document(f"{label}/{split}{index}", "", (text,)))
        shards[split] = writer.close()
        counts[split] = {"documents": number * len(read), "characters": number * sum(len(text) for _, text in read)}
    content = {
        "source": "sources",
        "counts": counts,
        "shards": shards,
        "sources": {"parts": {label: {} for label in texts}},
    }
    write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    return folder


def test_all_vocabularies_are_measured_on_each_source_and_on_languages_that_several_have(
    of_several: Path, saved, tmp_path: Path
) -> None:
    named = saved("other", dataclasses.replace(OWN, tokens=(*ALPHABET, "abc", "☃")))
    survey = survey_vocabulary(saved("own", OWN), of_several, compare=[str(named)])

    figures = {
        label: [(one.name, one.words, one.tokens, one.unknown) for one in fits]
        for label, fits in (survey.by_source | survey.by_language).items()
    }
    assert figures == {
        "laws[de]": [("this vocabulary", 4, 12, 0), ("models/other", 4, 8, 0)],
        "novels[de]": [("this vocabulary", 8, 12, 0), ("models/other", 8, 20, 0)],
        "papers[en]": [("this vocabulary", 8, 8, 2), ("models/other", 8, 24, 0)],
        "de": [("this vocabulary", 12, 24, 0), ("models/other", 12, 28, 0)],
    }
    assert survey.own.words == 20 and survey.own.tokens == 32
    assert [one.tokens for one in survey.given] == [52]

    write_vocabulary_page(tmp_path / "page.html", survey)
    rows = re.findall(
        r'<td data-head="source">(.*?)</td><td data-head="vocabulary">(.*?)</td><td data-head="words">(.*?)</td>',
        (tmp_path / "page.html").read_text(encoding="utf-8"),
    )
    assert rows[:4] == [
        ("all", "this vocabulary", "20"),
        ("all", "models/other", "20"),
        ("laws[de]", "this vocabulary", "4"),
        ("laws[de]", "models/other", "4"),
    ]


def test_a_corpus_of_one_source_has_one_row(survey: VocabularySurvey, tmp_path: Path) -> None:
    assert survey.by_source == {"text": [survey.own]} and survey.by_language == {}
    write_vocabulary_page(tmp_path / "page.html", survey)
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count('data-head="source"') == 1


def test_scripts_have_their_names_and_a_given_vocabulary_is_not_taken_for_a_trained_one(
    survey: VocabularySurvey, tmp_path: Path
) -> None:
    small = dataclasses.replace(survey, trained={"half": dataclasses.replace(survey.own, size=20)}, given=[])
    shown = []
    for was_trained in (True, False):
        write_vocabulary_page(tmp_path / "page.html", dataclasses.replace(small, was_trained=was_trained))
        shown.append((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert 'data-head="script">Latin<' in shown[0]
    assert ["What size buys" in page for page in shown] == [True, False]
