"""The WordPiece tokenizer that all stages and all inference interfaces use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from bertline.tokenization.vocabulary import (
    CLS,
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    SEP,
    SPECIAL_TOKENS,
    UNK,
    Vocabulary,
    read_vocabulary,
)


class Tokenizer:
    """A BERT WordPiece tokenizer.

    Text is cleaned, lower-cased and stripped of accents (uncased only), split at white space and punctuation, and each
    word is split greedily into the longest subwords in the vocabulary; a word that cannot be split in this way becomes
    [UNK] (Devlin et al. 2018, section 3; google-research/bert, tokenization.py). The ids are those of
    transformers.BertTokenizerFast.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = {token: index for index, token in enumerate(vocabulary.tokens)}
        self.vocabulary = vocabulary
        self.vocab: tuple[str, ...] = vocabulary.tokens
        self.lowercase: bool = vocabulary.lowercase
        self.vocab_size: int = len(self.vocab)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[token] for token in SPECIAL_TOKENS)
        self.special_ids: frozenset[int] = frozenset(ids[token] for token in SPECIAL_TOKENS)
        self.backend: tokenizers.Tokenizer = _backend(vocabulary, ids)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Load from any folder with `tokenizer.json` or `vocab.txt`: a bertline artifact or a Hugging Face checkpoint.

        Raises:
            DataError: The folder has no BERT vocabulary.
        """
        return cls(read_vocabulary(folder))

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without [CLS] and [SEP]. `[MASK]` in the text becomes the mask token."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Apply `encode` to many texts."""
        encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_literally(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode like `encode_batch`, but treat `[MASK]` or `[SEP]` in a text as ordinary text (`[`, `mask`, `]`).

        For training text: a page about BERT must not put a real [SEP] token into the middle of a segment.
        """
        self.backend.encode_special_tokens = True
        try:
            return self.encode_batch(texts)
        finally:
            self.backend.encode_special_tokens = False

    def encode_with_places(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Encode like `encode_literally`, and return the character offsets of each token: `text[start:end]`.

        Offsets refer to the original text, before cleaning, lower-casing and accent stripping. They never decrease;
        tokens that come from one character (a Korean syllable) have the same offsets. A combining mark after the last
        letter of a word belongs to no token.

        Example:
            >>> vocabulary = Vocabulary(tokens=(*SPECIAL_TOKENS, "the", "ete"), lowercase=True)
            >>> Tokenizer(vocabulary).encode_with_places(["The  Été"])
            [([5, 6], [(0, 3), (5, 8)])]
        """
        self.backend.encode_special_tokens = True
        try:
            encodings = self.backend.encode_batch(list(texts), add_special_tokens=False)
        finally:
            self.backend.encode_special_tokens = False
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens with these ids; tokens that continue a word start with `##`."""
        return [self.vocab[index] for index in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Return readable text: subwords joined into words, without special tokens.

        Case and spacing that encoding removed are not restored.
        """
        return self.backend.decode([int(index) for index in ids], skip_special_tokens=True)


def _backend(vocabulary: Vocabulary, ids: dict[str, int]) -> tokenizers.Tokenizer:
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
    special = [tokenizers.AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    backend.add_special_tokens(special)
    unsplit = [tokenizers.AddedToken(word, single_word=True, normalized=True) for word in vocabulary.unsplit]
    backend.add_tokens(unsplit)
    return backend


def bert_normalizer(vocabulary: Vocabulary) -> BertNormalizer:
    """Return BERT's normalizer.

    It removes control characters, puts spaces around Chinese characters, and handles case and accents as configured.
    """
    return BertNormalizer(
        clean_text=True,
        handle_chinese_chars=vocabulary.split_chinese_characters,
        strip_accents=vocabulary.strip_accents,
        lowercase=vocabulary.lowercase,
    )
