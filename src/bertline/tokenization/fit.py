"""How well a vocabulary fits a text."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bertline.tokenization.tokenizer import Tokenizer

_BATCH_WORDS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """How a vocabulary cuts a text; words are weighted by their counts."""

    name: str
    size: int
    words: int
    tokens: int
    whole: int
    """Words that are one known token."""
    unknown: int
    """Words that become [UNK]."""
    unknown_character_rate: float
    """Share of the characters that are in these."""
    counts: NDArray[np.int64]
    """[size] count of each token in the text."""

    @property
    def tokens_per_word(self) -> float:
        """Return the mean number of tokens of a word, also called fertility."""
        return self.tokens / max(1, self.words)

    @property
    def unknown_rate(self) -> float:
        """Return the share of words that become [UNK]."""
        return self.unknown / max(1, self.words)

    @property
    def continued_rate(self) -> float:
        """Return the share of words that are cut into several tokens."""
        return (self.words - self.whole - self.unknown) / max(1, self.words)

    @property
    def num_used(self) -> int:
        """Return the number of tokens that occur in the text."""
        return int(np.count_nonzero(self.counts))

    def coverage(self) -> list[tuple[float, float]]:
        """Return the share of the text's tokens that the most frequent 1, 2, 4, ... tokens make up."""
        sums = np.sort(self.counts)[::-1].cumsum() / max(1, self.tokens)
        numbers = [*(2**power for power in range(self.num_used.bit_length())), self.num_used]
        return [(float(number), float(sums[number - 1])) for number in dict.fromkeys(numbers) if number]


def cut_words(tokenizer: Tokenizer, parts: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Return a row for each word of each part of a text: `part`, `word`, `times`, `ids` (its tokens), `is_unknown`."""
    entries = [(part, word, number) for part, words in parts.items() for word, number in sorted(words.items())]
    frame = pd.DataFrame(entries, columns=["part", "word", "times"]).astype({"times": np.int64})
    words = sorted(set(frame["word"]))
    batches = (words[start : start + _BATCH_WORDS] for start in range(0, len(words), _BATCH_WORDS))
    ids = dict(zip(words, chain.from_iterable(map(tokenizer.encode_words, batches)), strict=True))
    frame["ids"] = [ids[word] for word in frame["word"]]
    frame["is_unknown"] = np.array([tokenizer.unk_id in of_word for of_word in frame["ids"]], dtype=np.bool_)
    return frame


def fit_of(name: str, tokenizer: Tokenizer, frame: pd.DataFrame) -> Fit:
    """Measure a vocabulary on the words of `cut_words`, or some of them."""
    times, unknown = frame["times"].to_numpy(), frame["is_unknown"].to_numpy()
    pieces, lengths = (frame[column].map(len).to_numpy(int) for column in ("ids", "word"))
    ids = np.fromiter(chain.from_iterable(frame["ids"]), dtype=np.int64)
    counts = np.bincount(ids, np.repeat(times, pieces), tokenizer.vocab_size).astype(np.int64)
    return Fit(
        name=name,
        size=tokenizer.vocab_size,
        words=int(times.sum()),
        tokens=int(counts.sum()),
        whole=int(times[(pieces == 1) & ~unknown].sum()),
        unknown=int(times[unknown].sum()),
        unknown_character_rate=float((times * lengths)[unknown].sum() / max(1, (times * lengths).sum())),
        counts=counts,
    )
