"""Configuration of the examples stage: sentence pairs and masking."""

from dataclasses import dataclass, fields
from typing import Literal

_MAX_SHARD_SEQUENCES = 1_000_000  # token offsets in a shard are 32-bit: sequences of 4,096 tokens still fit


@dataclass(frozen=True, kw_only=True, slots=True)
class _CommonMaskingConfig:
    mask_prob: float
    """Fraction of the tokens of a sequence chosen as targets (paper, section 3.1: 0.15)."""
    replace_with_mask_prob: float
    """Fraction of the targets replaced by [MASK] (paper: 0.8)."""
    replace_with_random_prob: float
    """Fraction of the targets replaced by a random token (paper: 0.1); the rest is unchanged."""
    unit: Literal["token", "word", "span"] = "token"
    """What is chosen at once: a token, a whole word, or a span of words (geometric, at most 10; SpanBERT)."""

    def __post_init__(self) -> None:
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob must lie between 0 and 1, found {self.mask_prob}")
        total = self.replace_with_mask_prob + self.replace_with_random_prob
        if min(self.replace_with_mask_prob, self.replace_with_random_prob) < 0 or total > 1 + 1e-9:
            raise ValueError(
                "replace_with_mask_prob and replace_with_random_prob must not be negative and must add up to 1 at "
                f"most, found {self.replace_with_mask_prob} and {self.replace_with_random_prob}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicMaskingConfig(_CommonMaskingConfig):
    """Dynamic masking: new targets in every epoch (RoBERTa, arXiv 1907.11692, section 4.1)."""

    kind: Literal["dynamic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticMaskingConfig(_CommonMaskingConfig):
    """Static masking as in the reference code: pairs are generated `dupe_factor` times, each copy with a fixed mask."""

    kind: Literal["static"]
    dupe_factor: int
    """Number of copies of each pair, each with a mask of its own (reference code: 10)."""

    def __post_init__(self) -> None:
        # super() without arguments does not work in slotted dataclasses, because the decorator creates a new class.
        _CommonMaskingConfig.__post_init__(self)
        if self.dupe_factor < 1:
            raise ValueError(f"dupe_factor must be at least 1, found {self.dupe_factor}")


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundsConfig:
    """What the train sequences of each length may be like; what is outside stops the stage. None allows everything."""

    max_duplicate_share: float | None = None
    """Largest fraction of sequences that repeat an earlier one; copies of static masking are not judged."""
    min_fill: float | None = None
    """Smallest fraction of the positions of the sequences that tokens fill."""
    max_truncated_share: float | None = None
    """Largest fraction of the tokens of the text that are cut off, because a sentence is longer than a sequence."""
    max_random_next_error: float | None = None
    """Largest difference between the fraction of pairs with a random second segment and `random_next_prob`."""
    max_unknown_share: float | None = None
    """Largest fraction of the tokens that are [UNK], and of the characters that are in words which become [UNK]."""
    max_rare_share: float | None = None
    """Largest fraction of the vocabulary that occurs fewer than ten times."""
    max_surface_accuracy: float | None = None
    """Largest accuracy with which random pairs are told from true ones by their surface: final marks and lengths (0.5:
    not at all)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{field.name} must be in [0, 1], or null for no bound; found {value}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExamplesConfig:
    """Sequences of each length, as in sections 3.1 and A.2 of the paper."""

    seed: int
    """Seed of the sentence pairs and of static masks."""
    lengths: tuple[int, ...]
    """Maximum sequence lengths in tokens, including [CLS] and both [SEP]; one set of shards per length. Empty if there
    is no pretraining. `auto` in YAML or on the command line: a short and a long one that suit the text, for the phases
    too."""
    random_next_prob: float | None
    """Fraction of pairs whose second segment comes from another document (0.5). None: no pairs; sequences are full
    sentences in one segment."""
    short_sequence_prob: float
    """Fraction of sequences with a random, shorter target length (0.1)."""
    shard_sequences: int
    """Sequences per shard."""
    masking: DynamicMaskingConfig | StaticMaskingConfig
    shuffle_sentences: int | None = None
    """Shuffle the sentences of each document, in runs of so many that stay together: the segments of a sequence then
    come from anywhere in it. None: the order of the text."""
    swapped_prob: float | None = None
    """Fraction of pairs, all of consecutive segments, in which the two change places (0.5). None: in none."""
    bounds: BoundsConfig = BoundsConfig()

    def __post_init__(self) -> None:
        if len(set(self.lengths)) != len(self.lengths) or min(self.lengths, default=8) < 8:
            raise ValueError(f"lengths must be different numbers of at least 8, found {list(self.lengths)}")
        if not 1 <= self.shard_sequences <= _MAX_SHARD_SEQUENCES:
            raise ValueError(f"shard_sequences must be 1 to {_MAX_SHARD_SEQUENCES}, found {self.shard_sequences}")
        if self.shuffle_sentences is not None and self.shuffle_sentences < 1:
            raise ValueError(
                f"shuffle_sentences must be 1 or more, or null for the text's order, found {self.shuffle_sentences}"
            )
        for name in ("random_next_prob", "swapped_prob", "short_sequence_prob"):
            if not 0 <= (getattr(self, name) or 0) <= 1:
                raise ValueError(f"{name} must be in [0, 1], found {getattr(self, name)}")
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
