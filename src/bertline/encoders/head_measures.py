"""What the attention heads of an encoder know of syntax: attention between words, heads against relations, a parser.

Shapes: B sentences, W words of the longest, K heads of all layers (layer by layer), T words of a treebank.

References:
    Clark et al., What Does BERT Look At? (arXiv 1906.04341): attention between words, section 4.1; heads against
    relations, 4.2; the parser, 5. Where the paper is silent, as its authors' `Syntax_Analysis.ipynb`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.encoders.loading import Encoder
from bertline.foundation.errors import DataError
from bertline.foundation.seeds import generator
from bertline.tokenization.tokenizer import Tokenizer

DIRECTIONS = ("dependent attends to head", "head attends to dependent")
OFFSETS = (*range(-10, 0), *range(1, 11))
"""Distances from a word to its guessed head; the notebook tries -3 to 2."""
_BATCH_TOKENS = 2048
_EDGES = 2
"""Words that stand for special tokens: one for those before the text, one for those behind it."""
_MOST_STORED = 1 << 28
"""Attentions that a parser is fitted on: half a gibibyte in fp16."""
_EPOCHS, _LEARNING_RATE = 30, 0.1
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Treebank:
    """Sentences as an encoder reads them, and the T words of all of them in a row."""

    tokenizer: Tokenizer
    words: list[list[list[int]]]
    """Tokens of each word of each sentence."""
    starts: NDArray[np.int64]
    """Place of each sentence's first word in the row, and the end of the row."""
    heads: NDArray[np.int64]
    """Place of each word's head in its sentence, from 1; 0 for a root."""
    distances: NDArray[np.int64]
    """Places from each word to its head, negative to the left; 0 for a root."""
    relations: NDArray[np.str_]
    documents: list[str]
    """Document of each word."""
    num_left_out: int
    """Sentences that are longer than the encoder reads."""

    @classmethod
    def of(cls, sentences: Sequence[Any], tokenizer: Tokenizer, *, max_length: int) -> Treebank:
        """Encode sentences (`tasks.conll.ParsedSentence`); a word without a token becomes the unknown one.

        Raises:
            DataError: All sentences are longer than `max_length` tokens.
        """
        tokens = iter(tokenizer.encode_words([word for sentence in sentences for word in sentence.words]))
        encoded = [(one, [next(tokens) or [tokenizer.unk_id] for _ in one.words]) for one in sentences]
        room = max_length - tokenizer.single.num_special
        used = [(one, words) for one, words in encoded if sum(map(len, words)) <= room]
        if not used:
            raise DataError(f"all sentences of the treebank are longer than the {max_length} tokens that are read.")
        heads = np.array([head for one, _ in used for head in one.heads])
        places = np.array([place for _, words in used for place in range(1, len(words) + 1)])
        return cls(
            tokenizer=tokenizer,
            words=[words for _, words in used],
            starts=np.cumsum([0, *(len(words) for _, words in used)]),
            heads=heads,
            distances=np.where(heads > 0, heads - places, 0),
            relations=np.array([relation for one, _ in used for relation in one.relations]),
            documents=[one.document for one, _ in used for _ in one.words],
            num_left_out=len(encoded) - len(used),
        )

    def rows(self, relation: str | None) -> NDArray[np.int64]:
        """Return the places of the words with a relation; None: of all but punctuation, as for the score of a tree."""
        return np.flatnonzero(self.relations != "punct" if relation is None else self.relations == relation)

    def sequence(self, index: int) -> list[int]:
        """Return the tokens of a sentence with special ones."""
        return self.tokenizer.single.sequence(token for word in self.words[index] for token in word)

    def batches(self) -> list[list[int]]:
        """Return sentences in batches of similar length, the longest first."""
        lengths = [sum(map(len, words)) + self.tokenizer.single.num_special for words in self.words]
        left, batches = sorted(range(len(lengths)), key=lambda index: -lengths[index]), []
        while left:
            size = max(1, _BATCH_TOKENS // lengths[left[0]])
            batches.append(left[:size])
            left = left[size:]
        return batches

    def places(self, batch: Sequence[int]) -> tuple[NDArray[np.int64], Bools]:
        """Return the place of each word of a batch in the row [B, W], and whether there is a word [B, W]."""
        sizes = np.array([len(self.words[index]) for index in batch])
        offsets = np.arange(sizes.max())
        is_word = offsets < sizes[:, None]
        return np.where(is_word, self.starts[list(batch)][:, None] + offsets, 0), is_word


def word_attention(encoder: Encoder, treebank: Treebank, batch: Sequence[int]) -> Tensor:
    """Return the attention between words [B, K, 2 + W, 2 + W]; the first two stand for the special tokens.

    Attention to a word is the sum over its tokens, attention from it their mean.
    """
    rows = [treebank.sequence(index) for index in batch]
    longest, num_words = max(map(len, rows)), max(len(treebank.words[index]) for index in batch)
    ids = torch.full((len(rows), longest), treebank.tokenizer.pad_id)
    belongs = torch.zeros(len(rows), _EDGES + num_words, longest)  # of a token to a word
    for number, (index, row) in enumerate(zip(batch, rows, strict=True)):
        ids[number, : len(row)] = torch.tensor(row)
        ends = np.cumsum([len(treebank.tokenizer.single.before), *map(len, treebank.words[index])]).tolist()
        belongs[number, 0, : ends[0]] = belongs[number, 1, ends[-1] : len(row)] = 1
        for word, (start, stop) in enumerate(pairwise(ends), start=_EDGES):
            belongs[number, word, start:stop] = 1
    device = encoder.word_embeddings.device
    ids, belongs = ids.to(device), belongs.to(device)
    layers = encoder.forward_in_detail(ids, torch.zeros_like(ids), belongs.sum(1).long()).layers
    means = belongs / belongs.sum(-1, keepdim=True).clamp(min=1)
    pooled = [means[:, None] @ layer.probabilities.float() @ belongs[:, None].mT for layer in layers]
    return torch.cat(pooled, dim=1)


@torch.no_grad()
def head_hits(
    encoder: Encoder,
    treebank: Treebank,
    batches: Iterable[list[int]],
    also: Callable[[list[int], Tensor], None] | None = None,
) -> Bools:
    """Return whether each head finds each word's head [T, 2 K], for each of `DIRECTIONS` in turn.

    The guess is the word that a word attends to most, or the one that attends to it most, of the other words: in both
    directions a guess for the dependent, as in the notebook. `also` is given each batch and its `word_attention`.
    """
    hits: Any = None
    for batch in batches:
        attention = word_attention(encoder, treebank, batch)
        places, is_word = treebank.places(batch)
        words = attention[:, :, _EDGES:, _EDGES:]
        both = torch.cat([words, words.mT], dim=1)
        guessed = _but_itself(both, is_word, -1.0).argmax(-1).cpu().numpy() + 1  # [B, 2 K, W]
        if hits is None:
            hits = np.zeros((len(treebank.heads), guessed.shape[1]), dtype=np.bool_)
        hits[places[is_word]] = (guessed == treebank.heads[places][:, None]).swapaxes(1, 2)[is_word]
        if also is not None:
            also(batch, attention)
    return hits


def _but_itself(scores: Tensor, is_word: Bools, value: float) -> Tensor:
    """Fill the scores [B, K, W, W] of a word for itself, and of what is no word."""
    itself = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    return scores.masked_fill(itself | ~torch.from_numpy(is_word).to(scores.device)[:, None, None], value)


def spread(sentences: Sequence[Any], count: int) -> list[Any]:
    """Return at most `count` sentences, evenly spread.

    >>> spread("abcdefg", 3)
    ['a', 'd', 'g']
    """
    places = np.linspace(0, len(sentences) - 1, min(count, len(sentences))).round().astype(int)
    return [sentences[place] for place in places]


def offset_hits(treebank: Treebank) -> Bools:
    """Return whether the word at each of `OFFSETS` is the head [T, offsets]."""
    return treebank.distances[:, None] == np.array(OFFSETS)


def relations_of(*treebanks: Treebank, min_examples: int) -> list[str]:
    """Return the relations with so many examples in each treebank, the most frequent first, without root and punct."""
    names, counts = np.unique(treebanks[0].relations, return_counts=True)
    ordered = [str(names[place]) for place in np.argsort(-counts, kind="stable") if names[place] not in _NOT_ASKED]
    return [name for name in ordered if min(len(bank.rows(name)) for bank in treebanks) >= min_examples]


_NOT_ASKED = ("root", "punct")


class AttentionParser(nn.Module):
    """The attention-only probe: the score of a candidate head is a weighted sum of attentions in both directions.

    A root is scored by the attention to the special tokens, as in the notebook.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(2, num_heads))
        self.edges = nn.Parameter(torch.ones(_EDGES))
        self._stored: dict[bool, list[tuple[Tensor, Tensor, Bools]]] = {True: [], False: []}

    def forward(self, attention: Tensor, is_word: Bools) -> Tensor:
        """Return scores [B, W, 1 + W] of the root and of each word as the head of each word."""
        there, back = torch.einsum("dk,bkij->dbij", self.weights, attention.float())
        scores = (there + back.mT)[:, _EDGES:]
        words = _but_itself(scores[:, None, :, _EDGES:], is_word, -torch.inf)[:, 0]
        return torch.cat([scores[..., :_EDGES] @ self.edges[:, None], words], dim=-1)

    def store(self, treebank: Treebank, batch: list[int], attention: Tensor) -> None:
        """Store a batch to fit on, in fp16; of a large treebank, only evenly spread sentences."""
        size = len(self.weights[0]) * int(((np.diff(treebank.starts) + _EDGES) ** 2).sum())
        every = -(-size // _MOST_STORED)
        for is_train, part in self._stored.items():
            kept = [i for i, index in enumerate(batch) if not index % every and bool(index // every % 3) is is_train]
            if kept:
                places, is_word = treebank.places([batch[place] for place in kept])
                targets = torch.from_numpy(np.where(is_word, treebank.heads[places], -1))
                width = is_word.shape[1] + _EDGES
                part.append((attention[kept, :, :width, :width].half(), targets.to(attention.device), is_word))

    def fit(self) -> None:
        """Fit on two thirds of the stored sentences, with the epoch whose loss is least on the others; forget them."""
        train, held_out = self._stored.values()
        optimizer, order = torch.optim.Adam(self.parameters(), lr=_LEARNING_RATE), generator(0, "parser")
        best, weights = float("inf"), self.state_dict()
        for _ in range(_EPOCHS):
            for place in order.permutation(len(train)):
                optimizer.zero_grad()
                self._loss(*train[place]).backward()
                optimizer.step()
            with torch.no_grad():
                loss = sum(float(self._loss(*stored)) for stored in held_out)
            if loss < best:
                best, weights = loss, {name: value.clone() for name, value in self.state_dict().items()}
        self.load_state_dict(weights)
        self._stored = {True: [], False: []}

    def _loss(self, attention: Tensor, targets: Tensor, is_word: Bools) -> Tensor:
        scores = self(attention, is_word).flatten(0, 1)
        return nn.functional.cross_entropy(scores, targets.flatten(), ignore_index=-1, reduction="sum")
