from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import probing_inputs as language
from bertline.examples.store import ExampleStore
from bertline.pretraining.probes import CORRUPTIONS, ProbingSentences, _Words, probing_sentences
from bertline.tokenization.training import train_byte_bpe

AS_IS, SHIFTED, ODD = (CORRUPTIONS.index(kind) for kind in ("as_is", "bigram_shift", "odd_word"))


@pytest.fixture
def open_store(tmp_path):
    """A maker of stores; `pairs` are the segments of the held-out examples."""

    def make(pairs) -> ExampleStore:
        language.write_examples(tmp_path / "examples", {"train": pairs[:1], "validation": pairs})
        return ExampleStore.open(tmp_path / "examples", "validation", language.LENGTH)

    return make


def two_regions(num_pairs: int = 300) -> list:
    """Two thirds of the pairs are made of the first half of the words, the others of the second half."""
    rng, half = np.random.default_rng(5), language.NUM_WORDS // 2
    first, second = range(half), range(half, language.NUM_WORDS)
    return [language.pair(rng, first if number < num_pairs * 2 // 3 else second) for number in range(num_pairs)]


def draw(store: ExampleStore, max_sentences: int = 300) -> ProbingSentences:
    return probing_sentences(store, language.TOKENIZER, max_sentences=max_sentences)


def words_of(ids: list[int]) -> list[tuple[int, ...]]:
    """The sentences of a segment, as tuples of tokens: in this language a word is one token."""
    ends = [at + 1 for at, token in enumerate(ids) if language.TOKENS[token] == "."]
    return [tuple(ids[start:stop]) for start, stop in pairwise([0, *ends])]


def flat(sentence) -> tuple[int, ...]:
    return tuple(token for word in sentence for token in word)


def of_kind(drawn: ProbingSentences, kind: int) -> list[tuple[int, ...]]:
    return [flat(sentence) for sentence, its in zip(drawn.sentences, drawn.kinds, strict=True) if its == kind]


def test_words_of_byte_level_tokens_begin_with_a_space_or_are_marks():
    tokenizer = train_byte_bpe(["The mill ran, the miller slept (well)."] * 2, vocab_size=275, min_frequency=2)
    words = _Words(tokenizer)
    found = ["".join(tokenizer.tokens(word)) for word in words.of(tokenizer.encode(" The miller, the mill."))]
    assert found == ["ĠThe", "Ġmiller", ",", "Ġthe", "Ġmill", "."]
    plain = [words.is_plain(tuple(tokenizer.encode(text))) for text in (" mill", ",", " (")]
    assert plain == [True, False, False]


def test_a_corrupted_sentence_is_one_of_the_text_but_for_two_neighbours_or_one_word(open_store):
    pairs = two_regions()
    text = {sentence for first, _ in pairs for sentence in words_of(first)}
    drawn = draw(open_store(pairs))
    assert set(of_kind(drawn, AS_IS)) <= text
    for shifted in of_kind(drawn, SHIFTED):
        undone = [(*shifted[:at], shifted[at + 1], shifted[at], *shifted[at + 2 :]) for at in range(len(shifted) - 1)]
        assert any(candidate in text and candidate != shifted for candidate in undone)
        assert shifted not in text
    for odd in of_kind(drawn, ODD):
        assert min(sum(a != b for a, b in zip(odd, one, strict=True)) for one in text if len(one) == len(odd)) == 1


def test_sentences_to_score_on_come_from_other_examples_than_those_to_fit_on(open_store):
    drawn = draw(open_store(two_regions()))
    assert len(drawn.kinds) == 300 and drawn.num_train == 200
    half = language.FIRST_WORD + language.NUM_WORDS // 2
    for number, (sentence, kind) in enumerate(zip(drawn.sentences, drawn.kinds, strict=True)):
        if kind != ODD:  # an odd word is drawn from all words
            assert all((token < half) == (number < drawn.num_train) for token in flat(sentence)[:-1])


def test_no_sentence_is_used_twice_however_often_the_text_has_it(open_store):
    pairs = two_regions(60)
    drawn = draw(open_store([*pairs, *pairs, *pairs]), max_sentences=10_000)
    distinct = {sentence for first, _ in pairs for sentence in words_of(first)}
    assert len(drawn.kinds) == len(distinct)
    # In sorted order, a shifted sentence is the one it was made from.
    uncorrupted = [tuple(sorted(sentence)) for sentence in of_kind(drawn, AS_IS) + of_kind(drawn, SHIFTED)]
    allowed = Counter(tuple(sorted(sentence)) for sentence in distinct)
    assert not Counter(uncorrupted) - allowed


def test_a_word_is_replaced_by_one_about_as_frequent(open_store):
    rng = np.random.default_rng(0)
    frequent, rare = range(12), range(12, language.NUM_WORDS)
    pairs = [language.pair(rng, frequent) for _ in range(400)] + [language.pair(rng, rare) for _ in range(12)]
    rng.shuffle(pairs)
    text = [sentence for first, _ in pairs for sentence in words_of(first)]
    counts = Counter(token for sentence in text for token in sentence)
    ranked = sorted(range(language.FIRST_WORD, len(language.TOKENS)), key=lambda token: -counts[token])
    by_length = {len(sentence): [one for one in text if len(one) == len(sentence)] for sentence in text}
    for odd in of_kind(draw(open_store(pairs), max_sentences=10_000), ODD):
        sources = [one for one in by_length[len(odd)] if sum(a != b for a, b in zip(odd, one, strict=True)) == 1]
        changes = [next((a, b) for a, b in zip(one, odd, strict=True) if a != b) for one in sources]
        assert any(abs(ranked.index(old) - ranked.index(new)) <= 14 for old, new in changes)  # ten, and ties


def test_only_words_are_moved_and_never_a_word_and_its_like(open_store):
    comma, stop, ending = (language.TOKENS.index(token) for token in (",", ".", "##s"))
    word = language.FIRST_WORD
    rows = []
    for number in range(90):
        other = word + 1 + number % 9
        rows.append(([word, word, comma, other, ending, comma, word + 10 + number // 9, other, stop], [word]))
    drawn = draw(open_store(rows))
    assert len(drawn.kinds) == 90
    for sentence, kind in zip(drawn.sentences, drawn.kinds, strict=True):
        if kind == SHIFTED:  # the one place where two different words are neighbours
            (first, second) = sentence[-3:-1]
            assert sentence[:3] == ((word,), (word,), (comma,))
            assert sentence[3][1:] == (ending,) and sentence[3][0] == first[0]
            assert second[0] >= word + 10
        assert [len(one) for one in sentence][:3] == [1, 1, 1]
