"""Sentences by what the corpus says of its words: cases of many languages, learning, settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.sentences.learned import LearnedSplitter, counts_of_words, learn
from corpora import build, manifest_of

NOTHING_READ = LearnedSplitter.of(learn(counts_of_words([])))


@pytest.mark.parametrize(
    "sentences",
    [
        # The rows of real statutes, court decisions and articles that used to be cut.
        ["Pub. L. 110-246, title I, Sec. 1001, amended it.", "See 10 U.S.C. Sec. 7730.", "The rest is history."],
        ["The motion is governed by Fed. R. Civ. P. 12(b)(6).", "Plaintiff relies on Roe v. Harris, 128 Idaho 569."],
        ["(Pub. L. 91-190, Sec. 2, Jan. 1, 1970, 83 Stat. 852.)", "Cf. Fed. R. Evid. 401."],
        ["Treas. Reg. § 1.61-1(a) defines income.", "The Cal. Civ. Code § 1714 says so.", "Id. at 117."],
        ["Sec. 12. Definitions in general.", "The term is defined in section 4."],
        ["The U.S. Army moved north.", "He met E.P. Thompson near Mt. Pilzhübel."],
        ["Nach § 433 Abs. 2 BGB ist er es.", "Er kam z. B. am 3. Mai nach Berlin.", "Der 2. Senat lehnte ab."],
        ["She moved to the U.S.", "The house was sold at 9 p.m. on Monday."],
        ["The Tex. Sup. Ct. agreed.", "Op. Att'y Gen. No. 82-14 says so.", "Harv. L. Rev. 45 differs."],
        ["Sen. Ted Cruz (R-Tex.) voted no.", "Subsec. (a) follows.", "Das LG hat am 5. 6. 2012 entschieden."],
        ["Harbor Sav. & Loan sued under Ex. Ord. No. 12148.", "See subpars. (A) to (D) at 88 N.J. Super. 255."],
        ["It cites 19 A.3d 1019 (Pa. Super. Ct. 2011).", "That (see p. 126 f.) was wrong.", "J.-P. Duhamel agreed."],
        ["Selon l'al. 2 de l'art. R. 421-5, le délai court.", "Il est né le 4 févr. 2016.", "V. aussi l'arrêt."],
        ["Auf Bl. 12 ff. d. A. wird verwiesen.", "Nach Nr. 3 der Anl. 2 gilt es (vgl. BGHZ 1, 2 m. w. N.).", "Gut."],
        # Prose, speech, lists.
        ["It rained.", "We stayed.", "why not?", "nobody came."],
        ['"Come here!" he cried.', '"Why?"', "She left (it was late).", "Nothing."],
        ["1. Install the package.", "2. Run it."],
        ["So am I.", "You too?", "Yes!"],
        ["J. R. R. Tolkien and C. S. Lewis met.", "They spoke."],
        ["Use a copy, e.g. Python's own, i.e. The one below.", "It takes apples, pears, etc. and more.", "The end."],
        ["He said no.", "It was No. 5 in the list.", "Samples are drawn from X.", "For large n it is slow."],
        # Other scripts and marks.
        ["ბაღში ბევრი ყვავილია.", "დედაშენი ლამაზია!", "წიგნი მაგიდაზე არის."],
        ["Կարծեմ ես քեզ ասեցի:", "Նա լավ է լսում։", "Լավ։"],
        ["سالگیرہ مبارک ہو۔", "ابھی بھی دیر نہیں ہوئی۔", "کیا؟", "ہاں۔"],
        ["በውነት ያስፈራል።", "ቶም ይናገራል።"],
        ["मैं घर गया।", "वह कौन है?", "राम आया।"],
        ["আমি বাড়ি যাই।", "সে কে?", "ভালো।"],
        ["நான் நிறைய சாப்பிட்டேன்.", "நாய் ஜாக்கிரதை!", "அவன் வந்தான்."],
        ["نمی دانم چطور ترجمه کنم.", "چرا؟", "هوا سرد است."],
        ["Τι κάνεις;", "Καλά είμαι.", "Εσύ;", "Όλα καλά."],
        ["나는 학교에 갔다.", "날씨가 좋다.", "왜?", "몰라."],
        ["བཀྲ་ཤིས་བདེ་ལེགས།", "ང་ཚོ་འདིར་ཡོད། །", "ཁྱེད་གང་དུ་འགྲོ།།", "ཡག་པོ་རེད།"],
        ["Он живёт на ул. Ленина в г. Москве.", "Хорошо."],
    ],
    ids=lambda sentences: sentences[0],
)  # fmt: skip
def test_a_paragraph_splits_into_its_sentences_before_anything_is_learned(sentences: list[str]) -> None:
    assert NOTHING_READ.split(" ".join(sentences)) == sentences


WORDS = "The firm sold it to them in spring. It was old. We saw the man there. They left the house at night. "


def test_an_abbreviation_is_learned_from_how_it_is_used() -> None:
    text = WORDS + "The Vrgl. Müller of Zorb. street met Vrgl. Anton and Vrgl. Peter, and also Vrgl. Schmidt in town. "
    before = NOTHING_READ.split("He met Vorgl. Meier. They spoke.")
    text = text.replace("Vrgl", "Vorgl") * 5

    splitter = LearnedSplitter.of(learn(counts_of_words([text])))

    assert before == ["He met Vorgl.", "Meier.", "They spoke."]
    assert splitter.split("He met Vorgl. Meier. They spoke.") == ["He met Vorgl. Meier.", "They spoke."]
    assert splitter.knowledge.summary()["most_frequent_abbreviations"]["vorgl."] == 20


def test_a_word_that_ends_sentences_is_no_abbreviation() -> None:
    knowledge = learn(counts_of_words([WORDS * 20]))
    assert not knowledge.abbreviations & {"old", "there", "night", "spring"}
    assert "It" in knowledge.starters


def test_ordinals_are_learned() -> None:
    text = "Se on 3. luokka täällä. Hän oli 2. kerros ylhäällä. " * 10
    learned = learn(counts_of_words([text]))
    assert learned.ordinals
    assert LearnedSplitter.of(learned).split("Talon 4. Kerros oli tyhjä.") == ["Talon 4. Kerros oli tyhjä."]


@pytest.mark.parametrize("num_workers", [1, 4])
def test_what_was_learned_stands_in_the_manifest_with_any_number_of_workers(
    text_config: Callable[..., Any], tmp_path: Path, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.corpus.build.SHARD_BYTES", 500)
    (tmp_path / "text").mkdir()
    for number in range(20):
        (tmp_path / f"text/{number:02d}.txt").write_text(f"{WORDS}Today Vorgl. Peter met Vorgl. Anton at no. {number}.")
    build(text_config(), tmp_path / "out", num_workers)

    learned = manifest_of(tmp_path / "out")["sentences"]
    assert learned["abbreviations"] == 2
    assert learned["most_frequent_abbreviations"] == {"vorgl.": 40, "no.": 20}
