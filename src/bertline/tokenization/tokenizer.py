"""The tokenizer that all stages and all inference interfaces use: BERT's WordPiece, or that of a folder as it is."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from bertline.foundation.errors import BertlineError, ConfigError, DataError
from bertline.foundation.progress import progress, say
from bertline.tokenization.vocabulary import (
    CLS,
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    OtherTokenizer,
    Vocabulary,
    read_other_tokenizer,
    read_vocabulary,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The special tokens of a sequence of one text, or of two, as the tokenizer's post-processor sets them."""

    before: tuple[int, ...]
    """Ids before the first text: `[CLS]`, `<s>`."""
    between: tuple[int, ...]
    """Ids between two texts; empty for one text."""
    after: tuple[int, ...]
    """Ids at the end."""
    second_type: int
    """Token type of the second text and of what follows it; 0 in families with a single token type."""

    @property
    def num_special(self) -> int:
        """Number of special tokens."""
        return len(self.before) + len(self.between) + len(self.after)

    def sequence(self, first: Iterable[int], second: Iterable[int] = ()) -> list[int]:
        """Return the token ids of a whole sequence."""
        return [*self.before, *first, *self.between, *second, *self.after]

    def room(self, max_length: int, *, question: int = 0, overlap: int = 0) -> int:
        """Return how many tokens of text a sequence of at most `max_length` tokens holds beside those of a question.

        Raises:
            ConfigError: There is no room, or no more than windows share (`overlap`).
        """
        room = max_length - question - self.num_special
        if room <= overlap:
            raise ConfigError(
                f"max_length is {max_length}, which leaves room for {max(0, room)} tokens of text beside "
                f"{self.num_special} special tokens{f' and {question} of a question' * (question > 0)}; needed are "
                f"more than {overlap}{' for windows that overlap (window_overlap)' * (overlap > 0)}. Give a "
                f"max_length of at least {max_length + overlap - room + 1}."
            )
        return room

    def first_length(self, first: int, second: int = 0) -> int:
        """Return how many tokens of a sequence have type 0, from the numbers of tokens of its texts."""
        has_types = self.between and self.second_type
        return len(self.before) + first + len(self.between) if has_types else first + second + self.num_special


class Tokenizer:
    """A BERT WordPiece tokenizer, or any other one that a `tokenizer.json` holds.

    WordPiece: text is cleaned, lower-cased and stripped of accents (uncased only), split at white space and
    punctuation, and each word is split greedily into the longest subwords in the vocabulary; a word that cannot be
    split in this way becomes [UNK] (Devlin et al. 2018, section 3; google-research/bert, tokenization.py). The ids are
    those of transformers.BertTokenizerFast.
    """

    def __init__(self, content: Vocabulary | OtherTokenizer) -> None:
        """Make the tokenizer of a vocabulary, or that of a `tokenizer.json`."""
        special: tuple[str, ...] = SPECIAL_TOKENS
        self._vocabulary = content if isinstance(content, Vocabulary) else None
        if isinstance(content, Vocabulary):
            self.backend = _backend(content)
        else:
            special = content.special_tokens
            self.backend = _other_backend(content)
            self.backend.no_truncation()  # MiniLM's, for example, truncates at 128
            self.backend.no_padding()
        of_token = self.backend.get_vocab(with_added_tokens=True)
        token_of = {index: token for token, index in of_token.items()}
        self.vocab = tuple(token_of.get(index, "") for index in range(max(token_of) + 1))
        self.vocab_size = len(self.vocab)
        self.special_tokens = special
        """Tokens for padding, unknown, start, end and mask, as this vocabulary spells them."""
        self.mask_token = special[-1]
        ids = [of_token[token] for token in special]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids
        added = self.backend.get_added_tokens_decoder().items()
        self._hidden: frozenset[int] = frozenset(ids) | {index for index, token in added if token.special}
        """Ids of tokens that stand for no text."""
        self.markers = () if isinstance(content, Vocabulary) else content.markers
        """Special tokens of a checkpoint's own that stand in a text, such as those around an entity."""
        self.special_ids = self._hidden.union(of_token[token] for token in self.markers)
        self._nameless: dict[bool, tokenizers.Tokenizer] = {}
        # A letter, or another text that has tokens: a small vocabulary of bytes lacks most of Unicode.
        decoded = (self.backend.decode([index]).strip() for index in range(self.vocab_size))
        letter = next((text for text in itertools.chain("a", decoded) if self.encode(text)), None)
        if letter is None:
            raise DataError("the tokenizer makes no token of any text. Copy its files again.")
        self.single, self.pair = (_layout(self.backend, letter, pair=pair) for pair in (False, True))
        self.sees_spaces = self.encode(f" {letter}") != self.encode(letter)
        """Whether the space before a word is part of its token, so that a text begins with another one than it has
        in the middle: byte-level BPE."""

    @classmethod
    def load(cls, folder: Path, *, lowercase: bool | None = None) -> Self:
        """Load a `vocab.txt`, or any folder with that or `tokenizer.json`: an artifact or a Hugging Face checkpoint.

        `lowercase` says whether a WordPiece lower-cases text; None takes what the folder says.

        Raises:
            DataError: The folder has no tokenizer that can be read, or its special tokens cannot be told.
        """
        try:
            tokenizer = cls(read_other_tokenizer(folder) or read_vocabulary(folder, lowercase=lowercase))
        except BertlineError:
            raise
        except Exception as error:  # the library of tokenizers has no error of its own
            raise DataError(f"{folder}: its tokenizer.json cannot be read ({error}). Copy it again.") from error
        if markers := tokenizer.markers:
            _say_once(
                f"{folder}: its {len(markers)} additional special tokens ({', '.join(markers[:5])}) are tokens in texts"
            )
        return tokenizer

    @property
    def is_wordpiece(self) -> bool:
        """Whether this is BERT's WordPiece, which has a `vocabulary`."""
        return self._vocabulary is not None

    @property
    def description(self) -> str:
        """What it is: `cased WordPiece`, `lower-cased WordPiece`, or the kind of another model."""
        if self._vocabulary is None:
            return type(self.backend.model).__name__
        return f"{'lower-cased' if self._vocabulary.lowercase else 'cased'} WordPiece"

    @property
    def vocabulary(self) -> Vocabulary:
        """The WordPiece vocabulary.

        Raises:
            DataError: The tokenizer is another one.
        """
        if self._vocabulary is None:
            raise DataError(f"this needs a WordPiece vocabulary, as BERT has; the tokenizer is {self.description}.")
        return self._vocabulary

    @property
    def lowercase(self) -> bool:
        """Whether text is lower-cased."""
        return self.encode("A") == self.encode("a") if self._vocabulary is None else self._vocabulary.lowercase

    @property
    def normalization(self) -> Vocabulary:
        """Vocabulary as whose words text is counted: its own; for other tokenizers, words as BERT splits cased text."""
        return Vocabulary(tokens=(), lowercase=False) if self._vocabulary is None else self._vocabulary

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Apply `encode_literally` to words of `normalization`, each as it is in the middle of a text."""
        spaced = self.sees_spaces
        return self.encode_literally([f" {word}" if spaced and word[0].isalnum() else word for word in words])

    def copy(self) -> Self:
        """Return an equal tokenizer; encoding changes a setting for a moment, so each thread has its own."""
        copied = copy(self)
        copied.backend = tokenizers.Tokenizer.from_str(self.backend.to_str())
        return copied

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without [CLS] and [SEP]. `[MASK]` in the text becomes the mask token."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def encode_literally(self, texts: Sequence[str], *, with_mask: bool = False) -> list[list[int]]:
        """Encode like `encode`, but treat `[MASK]` (unless `with_mask`) or `[SEP]` in a text as ordinary text (`[`,
        `mask`, `]`).

        A page about BERT must not put a real [SEP] token into the middle of a segment.
        """
        return list(self.encoded_literally(texts, with_mask=with_mask))

    def encoded_literally(self, texts: Sequence[str], *, with_mask: bool = False) -> Iterator[list[int]]:
        """Yield what `encode_literally` returns, of one block of texts after another: the tokenizer's own objects take
        many times the memory of the ids."""
        blocks = [texts[start : start + _BLOCK_OF_TEXTS] for start in range(0, len(texts), _BLOCK_OF_TEXTS)]
        for block in progress(blocks, description=f"encoding {len(texts):,} texts, blocks", is_brief=True):
            yield from [ids for ids, _ in self._encodings(block, with_mask=with_mask)]

    def _encodings(
        self, texts: Sequence[str], *, with_mask: bool = False, with_places: bool = False
    ) -> list[tuple[list[int], Any]]:
        """Return ids and encodings of texts in which special tokens are text; with `with_mask`, all but the mask.

        Unigram finds special tokens of its vocabulary in a text, as any others: such texts are encoded again.
        """
        encode = self.backend.encode_batch if with_places else self.backend.encode_batch_fast
        self.backend.encode_special_tokens = not with_mask
        try:
            encodings = encode(list(texts), add_special_tokens=False)
        finally:
            self.backend.encode_special_tokens = False
        encoded = [(encoding.ids, encoding) for encoding in encodings]
        hidden, unknown = self._hidden - {self.unk_id, self.mask_id if with_mask else None}, self.special_tokens[1]
        for number, (text, (ids, _)) in enumerate(zip(texts, encoded, strict=True)):
            if unknown in text or not hidden.isdisjoint(ids):
                encoding = self._without_names(with_mask=with_mask).encode(text, add_special_tokens=False)
                encoded[number] = encoding.ids, encoding
        return encoded

    def _without_names(self, *, with_mask: bool) -> tokenizers.Tokenizer:
        """Return the backend with names of special tokens that no text has: a score so low that they are never chosen
        would be that of unknown characters, too."""
        if with_mask not in self._nameless:
            hidden = {self.vocab[index] for index in self._hidden if not (with_mask and index == self.mask_id)}
            names = {token: f"\ufdd0{token}" for token in hidden}  # a code point that is no character
            content = json.loads(self.backend.to_str())
            model = content["model"]
            for token in content["added_tokens"]:
                token["content"] = names.get(token["content"], token["content"])
            if isinstance(vocab := model["vocab"], dict):
                model["vocab"] = {names.get(token, token): index for token, index in vocab.items()}
            else:
                model["vocab"] = [(names.get(token, token), score) for token, score in vocab]
            if "unk_token" in model:
                model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
            self._nameless[with_mask] = tokenizers.Tokenizer.from_str(json.dumps(content))
        return self._nameless[with_mask]

    def encode_with_places(
        self, texts: Sequence[str], *, with_mask: bool = False
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Encode like `encode_literally`, and return the character offsets of each token: `text[start:end]`.

        Offsets refer to the original text, before cleaning, lower-casing and accent stripping. They never decrease;
        tokens that come from one character (a Korean syllable) have the same offsets. A combining mark after the last
        letter of a word belongs to no token.

        >>> vocabulary = Vocabulary(tokens=(*SPECIAL_TOKENS, "the", "ete"), lowercase=True)
        >>> Tokenizer(vocabulary).encode_with_places(["The  Été"])
        [([5, 6], [(0, 3), (5, 8)])]
        """
        encoded = self._encodings(texts, with_mask=with_mask, with_places=True)
        if self.is_wordpiece:
            return [(ids, encoding.offsets) for ids, encoding in encoded]
        # Byte-level tokens begin with the space before a word, which some post-processors leave in their offsets.
        return [
            (ids, [(end - len(text[begin:end].lstrip()), end) for begin, end in encoding.offsets])
            for text, (ids, encoding) in zip(texts, encoded, strict=True)
        ]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens with these ids; tokens that continue a word start with `##`."""
        return [self.vocab[index] for index in ids]

    def readable_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return `tokens`, but those of other tokenizers than WordPiece as the text that they stand for: `house`, not
        `Ġhouse`; a token that is no text of its own, such as a part of a character, as it is."""
        if self.is_wordpiece:
            return self.tokens(ids)
        texts = [self.decode([index]).strip() for index in ids]
        return [
            text if text and text.isprintable() and "\ufffd" not in text else token
            for token, text in zip(self.tokens(ids), texts, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Return readable text, without special tokens; case and spacing that encoding removed are not restored."""
        return self.backend.decode([int(index) for index in ids], skip_special_tokens=True)


def _backend(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    model = WordPiece(
        ids, unk_token=UNK, max_input_chars_per_word=MAX_WORD_CHARACTERS, continuing_subword_prefix=CONTINUATION
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = bert_normalizer(vocabulary)
    backend.pre_tokenizer = BertPreTokenizer()
    backend.decoder = WordPieceDecoder(prefix=CONTINUATION)
    backend.post_processor = TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, ids[CLS]), (SEP, ids[SEP])],
    )
    backend.add_special_tokens(
        [tokenizers.AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    backend.add_tokens([tokenizers.AddedToken(word, single_word=True, normalized=True) for word in vocabulary.unsplit])
    return backend


def _other_backend(content: OtherTokenizer) -> tokenizers.Tokenizer:
    base = content.content
    backend = _backend(base) if isinstance(base, Vocabulary) else tokenizers.Tokenizer.from_str(base)
    if not content.own_tokens:
        return backend
    file = json.loads(backend.to_str())
    added = {token["id"]: token for token in file["added_tokens"]}
    for token in content.own_tokens:
        added[token["id"]] = {"single_word": False, "lstrip": False, "rstrip": False} | token | {"special": False}
    file["added_tokens"] = [added[index] for index in sorted(added)]
    backend = tokenizers.Tokenizer.from_str(json.dumps(file))
    for index, token in added.items():
        if (place := backend.token_to_id(token["content"])) != index:
            raise DataError(
                f"the added token {token['content']!r} has the id {index}; behind the vocabulary and those before it, "
                f"its id is {place}. Copy the tokenizer's files again: ids have no gap."
            )
    return backend


def _layout(backend: tokenizers.Tokenizer, letter: str, *, pair: bool) -> Layout:
    """Read the layout from what the post-processor makes of a short text, or of two."""
    encoding = backend.encode(letter, letter if pair else None)
    segments, ids, types = encoding.sequence_ids, encoding.ids, encoding.type_ids
    first = [place for place, segment in enumerate(segments) if segment == 0]
    second = [place for place, segment in enumerate(segments) if segment == 1] or [first[-1]]
    before, between, after = ids[: first[0]], ids[first[-1] + 1 : second[0]], ids[second[-1] + 1 :]
    return Layout(tuple(before), tuple(between), tuple(after), types[second[0]])


def bert_normalizer(vocabulary: Vocabulary) -> BertNormalizer:
    """Return BERT's normalizer of control characters, Chinese characters, case and accents."""
    return BertNormalizer(
        clean_text=True,
        handle_chinese_chars=vocabulary.split_chinese_characters,
        strip_accents=vocabulary.strip_accents,
        lowercase=vocabulary.lowercase,
    )


_say_once = cache(say)
_BLOCK_OF_TEXTS = 10_000

SentenceIds = tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]
"""[tokens] the ids of all sentences, concatenated, and [sentences] the number of tokens of each."""


def sentence_encoder(tokenizer: Tokenizer, dtype: npt.DTypeLike) -> Callable[[Sequence[str]], SentenceIds]:
    """Return a function that encodes sentences to the ids of `Tokenizer.encode_literally`.

    WordPiece is nanotoken's, many times as fast. The ids are of an unsigned `dtype` that holds every one.
    """

    def encode(sentences: Sequence[str]) -> SentenceIds:
        encoded = tokenizer.encode_literally(sentences)
        lengths = np.fromiter(map(len, encoded), np.int64, count=len(encoded))
        return np.fromiter(itertools.chain.from_iterable(encoded), dtype), lengths

    if not tokenizer.is_wordpiece:
        return encode
    from nanotoken import WordPieceTokenizer

    content = json.loads(tokenizer.backend.to_str())
    # To a tokenizer that does not know the special tokens they are ordinary text.
    content["added_tokens"] = [token for token in content["added_tokens"] if not token["special"]]
    wordpiece = WordPieceTokenizer.from_json(json.dumps(content | {"post_processor": None}))

    def encode_wordpiece(sentences: Sequence[str]) -> SentenceIds:
        # In this thread: engines have a process for each core.
        ids, bounds = wordpiece.encode_batch(sentences, add_special_tokens=False, parallel=False)
        return ids.astype(dtype), np.diff(bounds)

    return encode_wordpiece
