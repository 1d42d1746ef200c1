"""Byte-level BPE, as GPT-2 and RoBERTa have it, trained on text."""

from __future__ import annotations

from collections.abc import Iterable

import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import RobertaProcessing
from tokenizers.trainers import BpeTrainer

from bertline.foundation.errors import DataError
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import ROBERTA_TOKENS, OtherTokenizer

_IN_ORDER = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Special tokens in the order of their ids, from 0; the first four are RoBERTa's, whose mask is its last token."""


def train_byte_bpe(texts: Iterable[str], *, vocab_size: int, min_frequency: int) -> Tokenizer:
    """Train a byte-level BPE with RoBERTa's layout, `<s> A </s></s> B </s>`.

    The same texts give the same tokenizer, in any order and with any number of threads: all bytes are in the alphabet,
    in their order, and of pairs with equal counts the one with the lower ids is merged. (The library's trainer of
    WordPiece is not so: it numbers the subwords that continue words in the order of a hash table.)

    Args:
        texts: Documents. A word has the space before it in its token, so a document has to come in one text.
        vocab_size: Number of tokens, including the special tokens and the 256 bytes.
        min_frequency: Minimum count of a pair to be merged.

    Raises:
        DataError: The texts support fewer tokens.

    References:
        Radford et al. 2019, Language Models are Unsupervised Multitask Learners, section 2.2; Liu et al. 2019, arXiv
        1907.11692 (RoBERTa), section 4.4.
    """
    backend = tokenizers.Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(_IN_ORDER),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    if (supported := backend.get_vocab_size()) < vocab_size:
        raise DataError(
            f"tokenizer.vocab_size is {vocab_size}, but the text supports only {supported} tokens with tokenizer."
            f"min_frequency={min_frequency}. Lower one of them, or give more text."
        )
    backend.decoder = ByteLevelDecoder()
    backend.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    # RoBERTa's mask takes the space before it, so that it stands for a word with its space.
    backend.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    return Tokenizer.of(OtherTokenizer(content=backend.to_str(), special_tokens=ROBERTA_TOKENS))
