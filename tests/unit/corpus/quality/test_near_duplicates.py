from __future__ import annotations

import random
from collections import Counter

import pytest

from bertline.corpus.document import SourceDocument
from bertline.corpus.preparation import prepare_documents
from bertline.corpus.quality.drops import DropSamples
from bertline.corpus.quality.selection import (
    MAX_COMPARED,
    NearDuplicateIndex,
    PrepareWithQuality,
    without_near_duplicates,
)
from bertline.corpus.quality.word_hashes import word_hashes

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


def kept_and_dropped(texts: list[str], threshold: float = 0.7) -> tuple[list[str], Counter[str], DropSamples]:
    batch = [SourceDocument(f"d{number}", "", (text,)) for number, text in enumerate(texts)]
    prepared = PrepareWithQuality(prepare_documents, ngram=3, needles=None)(batch)
    dropped: Counter[str] = Counter()
    samples = DropSamples()
    kept = [document.id for document in without_near_duplicates(prepared, threshold, dropped, samples)]
    return kept, dropped, samples


def test_planted_copies_are_found_and_nothing_else_is() -> None:
    originals = [text_of(seed) for seed in range(150)]
    copies = [changed(words, (1 + index % 10) / 100, index) for index, words in enumerate(originals)]
    above = {150 + index for index, copy in enumerate(copies) if jaccard(originals[index], copy) >= 0.7}

    kept, dropped, _ = kept_and_dropped([" ".join(words) for words in [*originals, *copies]])

    found = {number for number in range(300) if f"d{number}" not in kept}
    assert 60 < len(above) < 150
    assert found <= above
    assert len(found) >= 0.95 * len(above)
    assert dropped == {"documents/near_duplicate": len(found)}


def test_the_first_stays_and_the_sample_names_it() -> None:
    text = " ".join(text_of(1))

    kept, _, samples = kept_and_dropped([text, "short", " ".join(text_of(2)), f"And: {text.upper()}!", "short"])

    assert kept == ["d0", "d1", "d2", "d4"]
    (sample,) = samples.content()["samples"]["documents/near_duplicate"]
    assert sample["id"] == "d3"
    assert sample["note"] == "99% equal to d0"


def test_vowel_signs_tell_words_apart() -> None:
    """Hindi का, कि and की differ only in signs, which are no letters in Unicode."""
    assert len(set(word_hashes(["\u0915\u093e \u0915\u093f \u0915\u0940"]).tolist())) == 3


def test_hashes_of_words_are_the_same_on_every_machine() -> None:
    assert word_hashes(["One", "internationally"]).tolist() == [3326657483498556344, 12137511047243432314]


def test_documents_of_a_template_are_compared_with_a_few_and_copies_among_them_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """400 documents just below the threshold are candidates of each other; 79,800 pairs would be compared."""
    template = text_of(0, 400)
    family = [[*template, *(f"own{number}x{place}" for place in range(90))] for number in range(400)]
    assert 0.6 < jaccard(family[0], family[1]) < 0.7
    copies = [changed(words, 0.02, index) for index, words in enumerate(family)]
    compared = []
    similarity_of = NearDuplicateIndex._similarity
    monkeypatch.setattr(
        NearDuplicateIndex, "_similarity", lambda self, *given: compared.append(1) or similarity_of(self, *given)
    )

    kept, dropped, _ = kept_and_dropped([" ".join(words) for words in [*family, *copies]])

    assert set(kept) >= {f"d{number}" for number in range(400)}
    assert dropped["documents/near_duplicate"] >= 0.99 * len(copies)
    assert len(compared) <= MAX_COMPARED * 800
