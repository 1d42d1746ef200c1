from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.quality import duplicates
from bertline.corpus.quality.duplicates import MAX_OF_BAND
from bertline.corpus.quality.word_hashes import word_hashes
from bertline.corpus.reader import NearDuplicatesConfig
from bertline.corpus.storage import read_documents
from corpora import build, drops_of

Kept = Callable[[list[str]], tuple[list[int], dict[str, Any]]]
NEEDED = [f"word{number}" for number in range(3000)]


def text_of(seed: int, num_words: int = 200) -> list[str]:
    return random.Random(seed).choices(NEEDED, k=num_words)


def changed(words: list[str], share: float, seed: int) -> list[str]:
    places = set(random.Random(seed).sample(range(len(words)), round(share * len(words))))
    return [f"other{at}" if at in places else word for at, word in enumerate(words)]


def jaccard(a: list[str], b: list[str]) -> float:
    """Compare 3-grams themselves, not their hashes."""
    first, second = (set(zip(words, words[1:], words[2:], strict=False)) for words in (a, b))
    return len(first & second) / len(first | second)


@pytest.fixture
def kept_and_dropped(tmp_path: Path, text_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Kept:
    def made(texts: list[str]) -> tuple[list[int], dict[str, Any]]:
        monkeypatch.setattr("bertline.corpus.build.SHARD_BYTES", 500_000)
        (tmp_path / "text").mkdir()
        for number, text in enumerate(texts):
            (tmp_path / "text" / f"{number:04}.txt").write_text(text)
        near = NearDuplicatesConfig(threshold=0.7, ngram=3)
        build(text_config(deduplicate="none", near_duplicates=near, validation_fraction=0.0), tmp_path / "out")
        kept = [int(document.id.removesuffix(".txt")) for document in read_documents(tmp_path / "out", "train")]
        return kept, drops_of(tmp_path / "out")

    return made


def test_planted_copies_are_found_and_nothing_else_is(kept_and_dropped: Kept) -> None:
    originals = [text_of(seed) for seed in range(150)]
    copies = [changed(words, (1 + index % 10) / 100, index) for index, words in enumerate(originals)]
    above = {150 + index for index, copy in enumerate(copies) if jaccard(originals[index], copy) >= 0.7}

    kept, drops = kept_and_dropped([" ".join(words) for words in [*originals, *copies]])

    found = set(range(300)) - set(kept)
    assert 60 < len(above) < 150
    assert found <= above
    assert len(found) >= 0.95 * len(above)
    assert drops["counts"] == {"documents/near_duplicate": len(found)}


def test_the_first_stays_and_the_sample_names_it(kept_and_dropped: Kept) -> None:
    text = " ".join(text_of(1))

    kept, drops = kept_and_dropped([text, "short", " ".join(text_of(2)), f"And: {text.upper()}!", "short"])

    assert kept == [0, 1, 2, 4]
    (sample,) = drops["samples"]["documents/near_duplicate"]
    assert sample["id"] == "0003.txt"
    assert sample["note"] == "99% equal to 0000.txt"


def test_a_chain_of_changes_keeps_what_is_unlike_all_that_stay(kept_and_dropped: Kept) -> None:
    """The second resembles the first and the third the second alone, which is left out."""
    first = text_of(1)
    third = [*first[:160], *text_of(2, 40)]
    second = [*first[:180], *third[180:]]
    assert jaccard(first, second) >= 0.7 <= jaccard(second, third) and jaccard(first, third) < 0.7
    assert kept_and_dropped([" ".join(words) for words in (first, second, third)])[0] == [0, 2]


def test_hashes_of_words_are_the_same_on_every_machine_and_tell_vowel_signs_apart() -> None:
    """Hindi का, कि and की differ only in signs, which are no letters in Unicode."""
    assert word_hashes(["One", "internationally"]).tolist() == [3326657483498556344, 12137511047243432314]
    assert len(set(word_hashes(["\u0915\u093e \u0915\u093f \u0915\u0940"]).tolist())) == 3


def test_documents_of_a_template_are_compared_with_a_few_and_copies_among_them_are_found(
    kept_and_dropped: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 documents just below the threshold are candidates of each other; 79,800 pairs would be compared."""
    template = text_of(0, 400)
    family = [[*template, *(f"own{number}x{place}" for place in range(90))] for number in range(400)]
    assert 0.6 < jaccard(family[0], family[1]) < 0.7
    copies = [changed(words, 0.02, index) for index, words in enumerate(family)]
    compared = []
    monkeypatch.setattr(
        duplicates,
        "similarity",
        lambda *given, similarity=duplicates.similarity: compared.append(1) or similarity(*given),
    )

    kept, drops = kept_and_dropped([" ".join(words) for words in [*family, *copies]])

    assert set(kept) >= set(range(400))
    assert drops["counts"]["documents/near_duplicate"] >= 0.99 * len(copies)
    assert 400 < len(compared) <= 4 * MAX_OF_BAND * 800
