"""The fast encoder gives the ids of the tokenizers library, and words are counted as it splits them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertline.tokenization.counting import count_words
from bertline.tokenization.tokenizer import SentenceIds, Tokenizer, bert_normalizer, sentence_encoder
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

LETTERS = "abcdeéxyzABCÉßσς'.,-[]#$½你好ㄱ한"
TOKENS = (
    *SPECIAL_TOKENS,
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *("the", "ab", "##ab", "abc", "mask", "sep", "##bc", "ο", "δ", "##σ", "##ς"),
)
TOKENIZERS = [
    Tokenizer(Vocabulary(tokens=TOKENS, lowercase=lowercase, strip_accents=strip, split_chinese_characters=chinese))
    for lowercase in (True, False)
    for strip in (None, True, False)
    for chinese in (True, False)
]
# Every category of Unicode, and what the rules of BERT treat in a way of its own, often.
CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from(
        [*" \t\n\r\x00\x85\x1c\u00a0\u00ad\u200b\u2028\u3000\ufffd\u0301\u0327\u0345ΣσςİŉẞﬁΩ你好한", *LETTERS]
    ),
)
TEXTS = st.one_of(st.text(CHARACTERS), st.text(" abcx#[]"), st.sampled_from(["[MASK] [SEP][CLS]", "ab[UNK]ab ##ab"]))


def encoded(encoder: Callable[[list[str]], SentenceIds], texts: list[str]) -> list[list[int]]:
    ids, lengths = encoder(texts)
    ends = np.cumsum(lengths)
    return [ids[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]


@settings(max_examples=200)
@given(st.lists(TEXTS, max_size=5), st.sampled_from(TOKENIZERS))
@example(["ΟΔΟΣ Σ", "a\u0301 \u0301b", "x\x85y\x1cz", "ẞ ŉ İ", "你好 ab", "a\u200bb\u00a0c", "  ", ""], TOKENIZERS[0])
@example(
    ["Ab Ab. (Ab Ab.) [Ab] 'Ab", "é é. (é .é ο\u0301Σ ο\u0301Σ. \u0301a (\u0301a . .. (. #", "½ ½. 你 你. .你"],
    TOKENIZERS[0],
)
@example(["a" * 100 + " " + "a" * 101, "é" * 100 + " " + "İ" * 60], TOKENIZERS[0])
@example(["a" * 100 + " " + "a" * 101, "a\u0327\u0301 \u0301\u0327b"], TOKENIZERS[-1])
def test_the_ids_are_those_of_the_library(texts: list[str], tokenizer: Tokenizer) -> None:
    encoder = sentence_encoder(tokenizer, "uint16")
    wanted = tokenizer.encode_literally(texts)
    assert encoded(encoder, texts) == wanted
    assert encoded(encoder, texts) == wanted  # from memory


def counted_one_by_one(sentences: list[str], vocabulary: Vocabulary) -> Counter[str]:
    normalizer, pre_tokenizer = bert_normalizer(vocabulary), BertPreTokenizer()
    return Counter(
        word for sentence in sentences for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(sentence))
    )


@settings(max_examples=200)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5), st.booleans())
def test_cutting_at_spaces_first_changes_no_count(sentences: list[str], lowercase: bool) -> None:
    vocabulary = Vocabulary(tokens=(), lowercase=lowercase)
    assert count_words(sentences, vocabulary) == counted_one_by_one(sentences, vocabulary)
