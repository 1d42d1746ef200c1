"""In a corpus of several languages, the random second segment of a pair has the language of the first."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice

import pytest

from bertline.corpus.document import Document, copy_id
from bertline.examples.store import Example
from bertline.tokenization.tokenizer import Tokenizer
from corpora import WORDS_OF, documents_in, write_corpus


def words_of_segments(example: Example, tokenizer: Tokenizer) -> list[set[str]]:
    """Return the words of both segments."""
    tokens = zip(tokenizer.tokens(example.input_ids.tolist()), example.token_type_ids, strict=True)
    words: list[set[str]] = [set(), set()]
    for token, segment in tokens:
        words[segment].add(token)
    return [segment - set(tokenizer.special_tokens) for segment in words]


@pytest.fixture
def pairs_of(build, config, tokenizer_folder, tmp_path):
    """`pairs_of(documents, random_next_prob)`: the words of both segments of each example, and all examples."""

    def pairs(documents: list[Document], random_next_prob: float = 0.5) -> tuple[list[list[set[str]]], list[Example]]:
        corpus = write_corpus(tmp_path / "languages", documents, documents, source="sources")
        examples = build(replace(config, random_next_prob=random_next_prob), corpus=corpus).examples(16)
        tokenizer = Tokenizer.load(tokenizer_folder)
        return [words_of_segments(example, tokenizer) for example in examples], examples

    return pairs


def test_both_segments_have_one_language_and_all_its_documents_are_drawn_from(pairs_of) -> None:
    # Two sources of one language, and languages in turns, as in a table with a column of languages.
    pairs, examples = pairs_of(documents_in(list(islice(cycle(["a[xx]", "a[yy]", "b[xx]"]), 60))))
    assert 0.3 < sum(example.next_sentence_label for example in examples) / len(examples) < 0.7
    for pair in pairs:
        first, second = ({name for name, words in WORDS_OF.items() if segment & set(words)} for segment in pair)
        assert first == second and len(first) == 1


@pytest.mark.parametrize("labels", [["a"] * 8, ["a[xx]", "a[yy]"] * 4, ["a[xx]"] + ["a[yy]"] * 7])
def test_a_random_segment_is_never_of_a_copy_of_the_document_and_of_every_other_one(pairs_of, labels) -> None:
    """Documents whose words no other one has, each there five times, as a weight makes them; the last has none."""
    all_words = [word for words in WORDS_OF.values() for word in words]
    own_words = [all_words[number * 6 : number * 6 + 6] for number in range(len(labels) - 1)]
    made = []
    for number, label in enumerate(labels):
        text = (" ".join(own_words[number]),) * 20 if number < len(own_words) else ("\x00",)
        document = Document(f"{label}/{number}", "", text)
        made += [document, *(replace(document, id=copy_id(document.id, copy)) for copy in range(2, 6))]
    drawn: dict[int, set[int]] = {}
    for pair in pairs_of(made, random_next_prob=1.0)[0]:
        [first], [second] = ({all_words.index(word) // 6 for word in segment} for segment in pair)
        drawn.setdefault(first, set()).add(second)
    assert set(drawn) == set(range(len(own_words)))
    for document, others in drawn.items():
        same = {other for other in drawn if other != document and labels[other] == labels[document]}
        assert others == (same or set(drawn) - {document})
