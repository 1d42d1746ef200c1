"""Text to piece ids and back: the one tokenizer that every stage and every door into a model uses."""

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
    MASK,
    MAX_WORD_CHARACTERS,
    PAD,
    SEP,
    SPECIAL_PIECES,
    UNK,
    Vocabulary,
    read_vocabulary,
)


class Tokenizer:
    """A BERT WordPiece tokenizer.

    Text is cleaned, lower-cased and stripped of accents (uncased only), cut at white space and punctuation, and each
    word is cut greedily into the longest pieces of the vocabulary; a word that cannot be cut so is [UNK] (Devlin et
    al. 2018, section 3; google-research/bert, tokenization.py). The ids are those of transformers.BertTokenizerFast.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = {piece: index for index, piece in enumerate(vocabulary.pieces)}
        self.vocabulary = vocabulary
        self.pieces: tuple[str, ...] = vocabulary.pieces
        self.lowercase: bool = vocabulary.lowercase
        self.vocab_size: int = len(self.pieces)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[piece] for piece in SPECIAL_PIECES)
        self.special_ids: frozenset[int] = frozenset(ids[piece] for piece in SPECIAL_PIECES)
        self.backend: tokenizers.Tokenizer = _backend(vocabulary, ids)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Load from any folder with `tokenizer.json` or `vocab.txt`: our artifact, or a Hugging Face checkpoint.

        Raises:
            DataError: There is no BERT vocabulary in the folder.
        """
        return cls(read_vocabulary(folder))

    def encode(self, text: str) -> list[int]:
        """The piece ids of a text, without [CLS] and [SEP]. `[MASK]` in the text is the mask itself."""
        return self.backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts."""
        encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_literally(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode_batch`, but `[MASK]` or `[SEP]` written in a text is cut into `[`, `mask`, `]` like any word.

        For text to learn from: a page about BERT must not put a real [SEP] into the middle of a segment.
        """
        self.backend.encode_special_tokens = True
        try:
            return self.encode_batch(texts)
        finally:
            self.backend.encode_special_tokens = False

    def encode_with_places(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """As `encode_literally`, with the place of each piece in its text, in characters: `text[start:end]`.

        Places are those of the text as it was given, before cleaning, whatever lower-casing and the stripping of
        accents make of it. They never step back; pieces of one character (a Korean syllable's) have the same place.
        A combining mark that stands after the last letter of a word belongs to no piece.

        Example:
            >>> vocabulary = Vocabulary(pieces=(*SPECIAL_PIECES, "the", "ete"), lowercase=True)
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
        """The pieces with these ids, continuations marked by `##`."""
        return [self.pieces[index] for index in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text: pieces joined into words, special pieces left out. Lost case and spacing stay lost."""
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
    special = [PAD, UNK, CLS, SEP, MASK]
    backend.add_special_tokens([tokenizers.AddedToken(piece, special=True, normalized=False) for piece in special])
    return backend


def bert_normalizer(vocabulary: Vocabulary) -> BertNormalizer:
    """BERT's cleaning: control characters out, spaces around Chinese characters, case and accents as configured."""
    return BertNormalizer(
        clean_text=True,
        handle_chinese_chars=vocabulary.split_chinese_characters,
        strip_accents=vocabulary.strip_accents,
        lowercase=vocabulary.lowercase,
    )
