"""Configuration of the tokenizer stage."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bertline.foundation.checked import Checked, PositiveInt, UserPath, UserPathOrHubName, at_least


@dataclass(frozen=True, kw_only=True, slots=True)
class _WordsConfig(Checked):
    user_words: tuple[str, ...] | UserPath
    """Words that are in the vocabulary in any case and are never split: a list, or a file with one a line. Empty for a
    byte-level BPE and for an existing vocabulary."""
    compare: tuple[UserPathOrHubName, ...]
    """WordPiece vocabularies that the data page puts next to this one: folders, `vocab.txt` files or hub names.
    They do not change the vocabulary."""

    def check(self) -> None:
        if self.user_words and not isinstance(self, TrainedTokenizerConfig | ExtendedTokenizerConfig):
            raise ValueError(
                f"user_words is {self.user_words!r}, but only a WordPiece vocabulary that is trained or extended takes "
                "words. Choose tokenizer=wordpiece, or tokenizer=extended pretrain.start_from=/path/to/checkpoint; "
                "otherwise set tokenizer.user_words=[]"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class _TrainedConfig(_WordsConfig):
    vocab_size: Annotated[int, at_least(100)]
    """Number of tokens, including the five special tokens."""
    min_frequency: PositiveInt
    """Minimum count of a pair of subwords to be merged."""
    sample_characters: PositiveInt
    """Approximate amount of text for counting words, in characters; documents are sampled by a hash."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _GivenConfig(_WordsConfig):
    revision: str | None
    """Revision of a hub name; None for files."""
    lowercase: bool | None
    """Whether to lower-case text; None detects it from the folder's files (see `read_vocabulary`). Only for BERT's
    WordPiece: any other tokenizer is taken as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedTokenizerConfig(_TrainedConfig):
    """A WordPiece vocabulary trained on the train split of the corpus."""

    kind: Literal["trained"]
    lowercase: bool
    """Whether to lower-case text, as BERT's uncased models do."""
    strip_accents: bool | None
    """Whether to strip accents; None means the value of `lowercase`, but keeps them in a text of a script in which they
    are vowels or make other letters (Devanagari, Thai, Cyrillic). False keeps them in an uncased vocabulary."""
    max_alphabet: PositiveInt
    """Maximum number of distinct characters to keep, the most frequent ones; rarer ones become [UNK]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteBpeTokenizerConfig(_TrainedConfig):
    """A byte-level BPE, as RoBERTa has, trained on the train split of the corpus: no text is unknown to it."""

    kind: Literal["byte_bpe"]
    vocab_size: Annotated[int, at_least(261)]
    """Number of tokens, including the five special tokens and all 256 bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExistingTokenizerConfig(_GivenConfig):
    """An existing tokenizer: a BERT `vocab.txt`, or any tokenizer folder or Hugging Face hub name."""

    kind: Literal["existing"]
    path: UserPathOrHubName
    """A `vocab.txt`, a folder that contains one or a `tokenizer.json`, or a hub name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtendedTokenizerConfig(_GivenConfig):
    """The vocabulary of a checkpoint, enlarged with words of the corpus that it cuts into the most tokens.

    Old tokens keep their ids. Pretraining gives each new token the mean of the rows of its old subwords.
    """

    kind: Literal["extended"]
    path: UserPathOrHubName | None
    """The checkpoint: a folder or hub name, that of `pretrain.start_from`."""
    num_new: PositiveInt
    """Maximum number of new words beside those of `user_words`; a text with fewer gives fewer."""
    min_frequency: PositiveInt
    """Minimum count of a new word: an embedding that is seldom read is hardly trained."""
    sample_characters: PositiveInt
    """Approximate amount of text for counting words, in characters; documents are sampled by a hash."""

    def check(self) -> None:
        if self.path is None:
            raise ValueError(
                "path is null, but a vocabulary is extended with words for the checkpoint that it belongs to. Name the "
                "checkpoint: pretrain.start_from=/path/to/checkpoint (tokenizer.path follows it)"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class NoTokenizerConfig:
    """No tokenizer stage: the checkpoint has its own vocabulary (`experiment=finetune`)."""

    kind: Literal["none"]


TokenizerConfig = TrainedTokenizerConfig | ByteBpeTokenizerConfig | ExistingTokenizerConfig | ExtendedTokenizerConfig
