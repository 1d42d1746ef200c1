"""Configuration of the examples stage: sentence pairs and masking."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bertline.foundation.checked import Checked, Fraction, PositiveInt, above, at_least, at_most, below


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommonMaskingConfig(Checked):
    mask_prob: Annotated[float, above(0), below(1)]
    """Fraction of the tokens of a sequence chosen as targets (paper, section 3.1: 0.15)."""
    replace_with_mask_prob: Fraction
    """Fraction of the targets replaced by [MASK] (paper: 0.8)."""
    replace_with_random_prob: Fraction
    """Fraction of the targets replaced by a random token (paper: 0.1); the rest is unchanged."""
    unit: Literal["token", "word", "span"] = "token"
    """What is chosen at once: a token, a whole word, or a span of words (geometric, at most 10; SpanBERT)."""

    def check(self) -> None:
        if self.replace_with_mask_prob + self.replace_with_random_prob > 1 + 1e-9:
            raise ValueError(
                "replace_with_mask_prob and replace_with_random_prob must add up to 1 at most, found "
                f"{self.replace_with_mask_prob} and {self.replace_with_random_prob}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicMaskingConfig(_CommonMaskingConfig):
    """Dynamic masking: new targets in every epoch (RoBERTa, arXiv 1907.11692, section 4.1)."""

    kind: Literal["dynamic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticMaskingConfig(_CommonMaskingConfig):
    """Static masking as in the reference code: pairs are generated `dupe_factor` times, each copy with a fixed mask."""

    kind: Literal["static"]
    dupe_factor: PositiveInt
    """Number of copies of each pair, each with a mask of its own (reference code: 10)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundsConfig(Checked):
    """What the train sequences of each length may be like; what is outside stops the stage. None allows everything."""

    max_duplicate_share: Fraction | None = None
    """Largest fraction of sequences that repeat an earlier one; copies of static masking are not judged."""
    min_fill: Fraction | None = None
    """Smallest fraction of the positions of the sequences that tokens fill."""
    max_truncated_share: Fraction | None = None
    """Largest fraction of the tokens of the text that are cut off, because a sentence is longer than a sequence."""
    max_random_next_error: Fraction | None = None
    """Largest difference between the fraction of pairs with a random second segment and `random_next_prob`."""
    max_unknown_share: Fraction | None = None
    """Largest fraction of the tokens that are [UNK], and of the characters that are in words which become [UNK]."""
    max_rare_share: Fraction | None = None
    """Largest fraction of the vocabulary that occurs fewer than ten times."""
    max_surface_accuracy: Fraction | None = None
    """Largest accuracy with which random pairs are told from true ones by their surface: final marks and lengths (0.5:
    not at all)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExamplesConfig(Checked):
    """Sequences of each length, as in sections 3.1 and A.2 of the paper."""

    seed: int
    """Seed of the sentence pairs and of static masks."""
    lengths: tuple[Annotated[int, at_least(8)], ...]
    """Maximum sequence lengths in tokens, including [CLS] and both [SEP]; one set of shards per length. Empty if there
    is no pretraining."""
    random_next_prob: Fraction | None
    """Fraction of pairs whose second segment comes from another document (0.5). None: no pairs; sequences are full
    sentences in one segment."""
    short_sequence_prob: Fraction
    """Fraction of sequences with a random, shorter target length (0.1)."""
    shard_sequences: Annotated[int, at_least(1), at_most(1_000_000)]
    """Sequences per shard. Its token offsets are 32-bit: with the most, sequences of 4,096 tokens still fit."""
    masking: DynamicMaskingConfig | StaticMaskingConfig
    shuffle_sentences: PositiveInt | None = None
    """Shuffle the sentences of each document, in runs of so many that stay together: the segments of a sequence then
    come from anywhere in it. None: the order of the text."""
    swapped_prob: Fraction | None = None
    """Fraction of pairs, all of consecutive segments, in which the two change places (0.5). None: in none."""
    bounds: BoundsConfig = BoundsConfig()

    def check(self) -> None:
        if len(set(self.lengths)) != len(self.lengths):
            raise ValueError(f"lengths must be different numbers, found {list(self.lengths)}")
        if self.swapped_prob and self.random_next_prob != 0:
            raise ValueError(
                f"swapped_prob is {self.swapped_prob}, which needs random_next_prob=0, because a pair has one label; "
                f"found {self.random_next_prob}. Use examples=sentence_order, or swapped_prob=0"
            )

    @property
    def min_documents(self) -> int:
        """Documents that a split needs: two where the second segment may be a random one of another document."""
        return 2 if self.random_next_prob else 1

    @property
    def wrong_next(self) -> str:
        """What the segments of pairs with label 1 are."""
        return "swapped" if self.swapped_prob else "random_next"

    @property
    def num_segments(self) -> int:
        """Number of segments of a sequence: 2 for pairs, else 1."""
        return 1 if self.random_next_prob is None else 2
