"""Configuration of the tokenizer stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedTokenizerConfig:
    """A WordPiece vocabulary trained on the train split of the corpus."""

    kind: Literal["trained"]
    vocab_size: int
    """Number of tokens, including the five special tokens."""
    lowercase: bool
    """Whether to lower-case text and strip accents, as BERT's uncased models do."""
    min_frequency: int
    """Minimum count of a pair of subwords to be merged."""
    max_alphabet: int
    """Maximum number of distinct characters to keep, the most frequent ones; rarer ones become [UNK]."""
    sample_characters: int
    """Approximate amount of text for counting words, in characters; documents are sampled by a hash."""

    def __post_init__(self) -> None:
        if self.vocab_size < 100:
            raise ValueError(f"vocab_size must be at least 100, found {self.vocab_size}")
        if min(self.max_alphabet, self.sample_characters) < 1:
            raise ValueError(
                "max_alphabet and sample_characters must be at least 1, "
                f"found {self.max_alphabet} and {self.sample_characters}"
            )
        if self.min_frequency < 1:
            raise ValueError(f"min_frequency must be at least 1, found {self.min_frequency}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExistingTokenizerConfig:
    """An existing BERT vocabulary: a `vocab.txt`, or a tokenizer folder or Hugging Face hub name."""

    kind: Literal["existing"]
    path: str
    """A `vocab.txt`, a folder that contains one, or a hub name."""
    revision: str | None
    """Revision of a hub name; None for files."""
    lowercase: bool | None
    """Whether to lower-case text; None detects it from the folder's files (see `read_vocabulary`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoTokenizerConfig:
    """No tokenizer stage: the checkpoint has its own vocabulary (`experiment=finetune`)."""

    kind: Literal["none"]


TokenizerConfig = TrainedTokenizerConfig | ExistingTokenizerConfig
