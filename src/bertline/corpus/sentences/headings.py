"""Headings: told from sentences, joined to what follows them, or left out."""

from __future__ import annotations

import re
from typing import Literal

from bertline.corpus.sentences.marks import SENTENCE_MARKS

Headings = Literal["stay", "joined", "dropped"]
Split = tuple[str, list[str]]
"""A paragraph and its sentences."""

_MAX_WORDS = 12
_MAX_WORDS_BEFORE_PERIOD = 6
_ENDS = re.compile(f"[{SENTENCE_MARKS},]['\"”’»›」』）)\\]}}]*$")
# Thai and Lao have no marks that end a sentence.
_WITHOUT_MARKS = re.compile("[\u0e00-\u0eff]")
# WikiExtractor puts a full stop behind each heading. A sentence as short as a heading has a verb, which a rule cannot
# see; what it can see are words of speech, which headings do not have.
_WITH_PERIOD = re.compile(r"[^\W_][^.!?…\"“”«»]*[^\W_)]\.$")
_OF_SPEECH = frozenset(
    {
        *("you", "he", "she", "it", "we", "they", "me", "him", "us", "them", "this", "that", "there", "here"),
        *("is", "are", "was", "were", "be", "am", "has", "have", "had", "do", "does", "did", "said", "went", "came"),
        *("will", "would", "can", "could", "should", "not", "no", "yes"),
    }
)


def is_heading(text: str) -> bool:
    """Return whether a paragraph reads like a heading: a few words without a mark that ends a sentence.

    Up to six words with a full stop are a heading too (WikiExtractor's "External links."), unless one of them is of
    those that make sentences ("He left.") or a number or abbreviation inside has a full stop of its own.

    Example:
        >>> [is_heading(text) for text in ("Early life", "External links.", "He left.", "It was late", "Who is it?")]
        [True, True, False, False, False]
    """
    words = text.split()
    if not words or len(words) > _MAX_WORDS or "\n" in text or not text[0].isalnum() or text[0].islower():
        return False
    if _WITHOUT_MARKS.match(text):
        return False
    if "I" in words[:-1] or not _OF_SPEECH.isdisjoint(word.lower().rstrip(".") for word in words):
        return False
    if not _ENDS.search(text):
        return True
    return len(words) <= _MAX_WORDS_BEFORE_PERIOD and _WITH_PERIOD.match(text) is not None


def place_headings(paragraphs: list[Split], headings: Headings) -> tuple[list[Split], tuple[str, ...]]:
    """Join each heading to the sentence that follows it, or leave it out.

    A heading needs something below it: the last paragraph of a document is none. What ends in a mark may be a sentence
    ("Dogs bark."), and is never left out.

    Returns:
        The paragraphs, and the headings that were left out.

    Example:
        >>> place_headings([("Life", ["Life"]), ("He was born. He died.", ["He was born.", "He died."])], "joined")
        ([('Life He was born. He died.', ['Life He was born.', 'He died.'])], ())
    """
    if headings == "stay":
        return paragraphs, ()
    placed: list[Split] = []
    above: list[str] = []
    dropped: list[str] = []
    for index, (text, sentences) in enumerate(paragraphs):
        left_out = headings != "dropped" or not _ENDS.search(text)
        if left_out and index + 1 < len(paragraphs) and is_heading(text):
            (above if headings == "joined" else dropped).append(text)
            continue
        if above:
            text = " ".join((*above, text))
            sentences = [" ".join((*above, sentences[0])), *sentences[1:]]
        placed.append((text, sentences))
        above = []
    return placed, tuple(dropped)
