"""Filling of blanks by a model with a masked language model head, and printable guesses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from bertline.foundation.errors import DataError
from bertline.modeling.bert import MaskedLanguageModel
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import MASK

if TYPE_CHECKING:
    from bertline.inference.model import LoadedModel

_BLANK = re.compile(r"_{2,}|\[MASK\]")


class Guess(NamedTuple):
    """Predicted token for a blank."""

    token: str
    probability: float


def fill_blanks(
    model: MaskedLanguageModel | Any, tokenizer: Tokenizer, text: str, top_k: int, max_length: int
) -> list[list[Guess]]:
    """Return the `top_k` most likely tokens for each `[MASK]` of a text, most likely first.

    Raises:
        DataError: The text has no `[MASK]`, or more than `max_length` tokens.
    """
    # [MASK] stands for the family's own mask token, `<mask>` for example, which may be written too.
    ids = sequence_of(tokenizer, text.replace(MASK, tokenizer.mask_token), None, max_length)[0]
    blanks = [position for position, token in enumerate(ids) if token == tokenizer.mask_id]
    if not blanks:
        raise DataError(f"no {MASK} in {text!r}; write {MASK} where a word is missing.")
    device = next(model.parameters()).device
    input_ids = torch.tensor([ids], device=device)
    with torch.no_grad():
        output = model(input_ids, torch.zeros_like(input_ids), None, torch.tensor([blanks], device=device))
        # Embeddings may be padded: ids behind the tokenizer's stand for nothing.
        probabilities = output.mlm_logits[0, :, : tokenizer.vocab_size].softmax(-1)  # [blanks, V]
    special = torch.tensor(sorted(tokenizer.special_ids), device=device)
    best = probabilities.index_fill(1, special, -1.0).topk(min(top_k, tokenizer.vocab_size - len(special)))
    return [
        [Guess(*guess) for guess in zip(tokenizer.readable_tokens(tokens), values, strict=True)]
        for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def sequence_of(tokenizer: Tokenizer, text: str, text_pair: str | None, max_length: int) -> tuple[list[int], list[int]]:
    """Encode one sequence as token ids and token types. `[MASK]` is encoded as the mask token.

    Raises:
        DataError: The sequence has more than `max_length` tokens; it is not truncated, which could lose a mask.
    """
    layout = tokenizer.single if text_pair is None else tokenizer.pair
    first, second = tokenizer.encode(text), [] if text_pair is None else tokenizer.encode(text_pair)
    ids = layout.sequence(first, second)
    of_first = layout.first_length(len(first), len(second))
    types = [0] * of_first + [1] * (len(ids) - of_first)
    if len(ids) > max_length:
        raise DataError(f"the text has {len(ids)} tokens; the model reads at most {max_length}. Shorten it.")
    return ids, types


def filled(model: LoadedModel, sentence: str, *, num_guesses: int) -> str:
    """Return the guesses for each blank (`___` or `[MASK]`) of a sentence as text, one line per blank.

    Raises:
        DataError: The sentence has no blank.
    """
    if not _BLANK.search(sentence):
        raise DataError(f"no blank in {sentence!r}; write ___ where a word is missing")
    guesses = model.fill_mask(_BLANK.sub("[MASK]", sentence), top_k=num_guesses)
    return "\n".join("  " + "   ".join(f"{token} {prob:.0%}" for token, prob in blank) for blank in guesses)
