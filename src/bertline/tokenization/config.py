"""Configuration of the tokenizer stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedTokenizerConfig:
    """A WordPiece vocabulary trained on the corpus' train split."""

    kind: Literal["trained"]
    vocab_size: int
    """Pieces, the five special ones included."""
    lowercase: bool
    """Lower-case and strip accents, as BERT's uncased models do."""
    min_frequency: int
    """A pair of pieces seen less often is not merged."""
    max_alphabet: int
    """The most frequent characters kept as pieces; rarer ones become [UNK]."""
    sample_characters: int
    """Words are counted on about this much text, chosen by a hash of the document."""

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
    """A given BERT vocabulary: a `vocab.txt`, or a folder or hub name that has one."""

    kind: Literal["existing"]
    path: str
    revision: str | None
    """Pins a hub name; None for files."""
    lowercase: bool | None
    """None reads it from the folder's tokenizer_config.json."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoTokenizerConfig:
    """No vocabulary is made: the checkpoint brings its own (`experiment=finetune`)."""

    kind: Literal["none"]


TokenizerConfig = TrainedTokenizerConfig | ExistingTokenizerConfig
