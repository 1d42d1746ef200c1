"""Words that are whole in a vocabulary: the user's, and those of the corpus that a checkpoint's vocabulary lacks."""

import heapq
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bertline.foundation.errors import DataError
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import CONTINUATION, MAX_WORD_CHARACTERS, SPECIAL_TOKENS, Vocabulary

_KEY = "tokenizer.user_words"
_JOINERS = "\u200c\u200d"
# What stands for the space before a word in byte-level and in SentencePiece vocabularies.
_SPACES = ("\u0120", "\u2581")
# First bytes of UTF-8 from U+4000 to U+9FFF and from U+20000 to U+2FFFF, as byte-level tokens write them.
_CHINESE_BYTES = re.compile("[\xe4-\xe9]|\xf0[\xa1-\xaf\u0142\u0143]")


def read_user_words(given: Sequence[str] | str, words_of: Callable[[str], Sequence[str]]) -> dict[str, bool]:
    """Read the user's words and normalise them as text is.

    Returns:
        Normalised word to whether BERT's pre-tokenizer splits it (`covid-19`, `c++`), in the order given.

    Raises:
        DataError: The file cannot be read, or a word has a space or is none; the message names the word and its line.
    """
    if isinstance(given, str):
        path = Path(given).expanduser()
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{_KEY} names {given}, which cannot be read ({error}). Give a UTF-8 file with a word on each line, or "
                f"the words themselves: {_KEY}=[kubernetes, covid-19]"
            ) from error
        entries = [(f"{path}, line {number}", line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    else:
        entries = [(f"{_KEY}[{index}]", word.strip()) for index, word in enumerate(given)]
    is_split: dict[str, bool] = {}
    for where, word in entries:
        parts = list(words_of(word))
        whole = "".join(parts)
        is_split[whole] = len(parts) > 1
        is_several = len(word.split()) > 1 or (any(map(_is_chinese, whole)) and len(whole) > 1)
        problems = {
            "has no characters that BERT reads": not whole,
            "is more than one word: text is split at spaces and around Chinese characters first": is_several,
            "stands for something else in a vocabulary (a continued word, or a special token)": (
                whole.startswith(CONTINUATION) or whole.upper() in SPECIAL_TOKENS
            ),
            f"has {len(whole)} characters; a word has at most {MAX_WORD_CHARACTERS}": len(whole) > MAX_WORD_CHARACTERS,
        }
        for problem, is_so in problems.items():
            if is_so:
                raise DataError(f"{where}: {word!r} {problem}. Leave it out, or write it in another way.")
    return is_split


def word_starts(tokenizer: Tokenizer) -> list[bool]:
    """Return for each token whether it begins a word; behind a special token, every token does.

    WordPiece marks tokens that continue a word. Other tokenizers mark those behind a space; without the mark, letters
    and digits continue a word, and punctuation and Chinese characters are words of their own, as for BERT.
    """
    if tokenizer.is_wordpiece:
        return [not token.startswith(CONTINUATION) for token in tokenizer.vocab]
    firsts = [tokenizer.decode([index])[:1] for index in range(tokenizer.vocab_size)]
    return [
        token.startswith(_SPACES)
        or (bool(_CHINESE_BYTES.match(token)) if first == "\ufffd" else not _is_of_word(first) or _is_chinese(first))
        for token, first in zip(tokenizer.vocab, firsts, strict=True)
    ]


def _is_chinese(character: str) -> bool:
    """Return whether BERT's normalizer puts spaces around a character (_is_chinese_char of google-research/bert)."""
    return unicodedata.name(character, "").startswith("CJK ") and unicodedata.category(character) == "Lo"


def with_user_words(tokens: Sequence[str], words: Sequence[str], *, size: int) -> tuple[str, ...]:
    """Return a trained vocabulary with the user's words, in place of the last tokens that were learned.

    Raises:
        DataError: There is no room for the words.
    """
    wanted = set(words)
    missing = [word for word in dict.fromkeys(words) if word not in set(tokens)]
    learned = [token for token in tokens if len(token.removeprefix(CONTINUATION)) > 1]
    removable = [token for token in learned if token not in wanted and token not in SPECIAL_TOKENS]
    surplus = max(0, len(tokens) + len(missing) - size)
    if surplus > len(removable):
        raise DataError(
            f"tokenizer.vocab_size is {size}, which has no room for the {len(wanted)} words of {_KEY} beside the "
            "characters of the text. Raise tokenizer.vocab_size, or give fewer words."
        )
    gone = set(removable[len(removable) - surplus :])
    return (*(token for token in tokens if token not in gone), *missing)


def _is_of_word(character: str) -> bool:
    """Return whether a character is a letter, a mark, a digit, an underscore or what joins letters."""
    if not character:
        return False
    kind = unicodedata.category(character)
    return kind[0] in "LM" or kind in ("Nd", "Nl", "Pc") or character in _JOINERS


def words_to_add(
    vocabulary: Vocabulary, word_counts: Mapping[str, int], *, num_new: int, min_frequency: int
) -> tuple[str, ...]:
    """Choose the words whose addition saves most tokens of the text, given those chosen before them.

    A word saves its count times the number of its tokens less one. Words are chosen one by one, each time with the
    tokens that it has by then: after "tokenizer", "tokenizers" is two tokens and saves less. Numbers are left out: as
    whole words they say nothing of other numbers. Ties go to the word that is first in alphabetical order.

    Returns:
        Words that are not in the vocabulary, in the order of choice.

    >>> old = Vocabulary(tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "##c"), lowercase=True)
    >>> words_to_add(old, {"abc": 9, "abcb": 4, "ab": 9, "a": 99}, num_new=2, min_frequency=2)
    ('abc', 'ab')
    """
    cutter = _Cutter(vocabulary.tokens)

    def saved(word: str) -> int:
        return word_counts[word] * (cutter.num_tokens(word) - 1)

    frequent = (word for word, count in word_counts.items() if count >= min_frequency and not word.isdecimal())
    savings = ((word, saved(word)) for word in frequent if len(word) <= MAX_WORD_CHARACTERS)
    queue = [(-num_saved, word) for word, num_saved in savings if num_saved]
    heapq.heapify(queue)
    chosen: list[str] = []
    while queue and len(chosen) < num_new:
        negative, word = heapq.heappop(queue)
        # What a word saves almost never grows by the choice of others, so only the first of the queue is looked at.
        now = -saved(word)
        if now == negative:
            cutter.add(word)
            chosen.append(word)
        elif now < 0:
            heapq.heappush(queue, (now, word))
    return tuple(chosen)


class _Cutter:
    """Counts the tokens of words under a vocabulary that grows by whole words."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._beginnings = set(tokens)
        self._continuations = {token.removeprefix(CONTINUATION) for token in tokens if token.startswith(CONTINUATION)}
        self._longest = max(map(len, tokens))

    def add(self, word: str) -> None:
        self._beginnings.add(word)
        self._longest = max(self._longest, len(word))

    def num_tokens(self, word: str) -> int:
        number, start, table = 0, 0, self._beginnings
        while start < len(word):
            for stop in range(min(len(word), start + self._longest), start, -1):
                if word[start:stop] in table:
                    break
            else:
                return 2  # of a word that becomes [UNK]: to know it is worth one token for each time it occurs
            number, start, table = number + 1, stop, self._continuations
        return number


def parts_of_new_tokens(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Return for each token of `new` behind those of `old` at least one old id: what its embedding is a mean of."""
    words = [token.removeprefix(CONTINUATION) for token in new.vocab[old.vocab_size :]]
    return [ids or [old.unk_id] for ids in old.encode_literally(words)]
