"""What attention heads know of syntax: attention between words, heads against relations, a parser.

Shapes: B sentences, W words of the longest, K heads of all layers (layer by layer), T words of a treebank.

References: Clark et al., What Does BERT Look At? (arXiv 1906.04341): attention between words, section 4.1; heads
against relations, 4.2; the parser, 5. Where the paper is silent, as its authors' `Syntax_Analysis.ipynb`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bertline.encoders.loading import Encoder
from bertline.foundation.errors import DataError
from bertline.foundation.seeds import generator
from bertline.tokenization.tokenizer import Tokenizer

ALL = "all"  # name, as of a relation, of all words but punctuation, which count in the score of a tree
OFFSETS = (*range(-10, 0), *range(1, 11))  # from a word to its guessed head; the notebook tries -3 to 2
_BATCH_TOKENS = 2048
_EDGES = 2  # words that stand for special tokens: one for those before the text, one for those behind it
_MOST_SENTENCES = 4000  # that a parser is fitted on: 0.4 GB of attentions in fp16 for 144 heads
_EPOCHS, _LEARNING_RATE = 30, 0.1
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Treebank:
    """Sentences as an encoder reads them, and the T words of all of them in a row.

    Each word of the row has the place of its head in its sentence, from 1 (0 for a root), its relation and its
    document.
    """

    tokenizer: Tokenizer
    words: list[list[list[int]]]
    """Tokens of each word of each sentence."""
    starts: NDArray[np.int64]
    """Place of each sentence's first word in the row, and the end of the row."""
    heads: NDArray[np.int64]
    relations: NDArray[np.str_]
    documents: list[str]

    @classmethod
    def of(cls, sentences: Sequence[Any], tokenizer: Tokenizer, *, max_length: int) -> Self:
        """Encode sentences (`tasks.treebank.ParsedSentence`) of at most `max_length` tokens; DataError if none is."""
        tokens = iter(tokenizer.encode_words([word for sentence in sentences for word in sentence.words]))
        # Of a word such as a variation selector no token is left.
        encoded = [(one, [next(tokens) or [tokenizer.unk_id] for _ in one.words]) for one in sentences]
        room = max_length - tokenizer.single.num_special
        used = [(one, words) for one, words in encoded if sum(map(len, words)) <= room]
        if not used:
            raise DataError(f"a part of the treebank has no sentence of at most {max_length} tokens, which are read.")
        starts = np.cumsum([0, *(len(words) for _, words in used)])
        heads = [head for one, _ in used for head in one.heads]
        relations = np.array([relation for one, _ in used for relation in one.relations])
        documents = [one.document for one, _ in used for _ in one.words]
        words = [words for _, words in used]
        return cls(tokenizer, words, starts, np.array(heads), relations, documents)

    def rows(self, relation: str) -> NDArray[np.int64]:
        """Return the places of the words with a relation."""
        return np.flatnonzero(self.relations != "punct" if relation == ALL else self.relations == relation)

    def sequence(self, index: int) -> list[int]:
        """Return the tokens of a sentence with special ones."""
        return self.tokenizer.single.sequence(token for word in self.words[index] for token in word)

    def batches(self) -> list[list[int]]:
        """Return sentences in batches of similar length, the longest first."""
        left, batches = sorted(range(len(self.words)), key=lambda index: -len(self.sequence(index))), []
        while left:
            size = max(1, _BATCH_TOKENS // len(self.sequence(left[0])))
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
    layout, num_words = treebank.tokenizer.single, max(len(treebank.words[index]) for index in batch)
    owners = []
    for index in batch:
        inner = [word for word, tokens in enumerate(treebank.words[index], start=_EDGES) for _ in tokens]
        owners.append(torch.tensor([*[0] * len(layout.before), *inner, *[1] * len(layout.after)]))
    rows = [torch.tensor(treebank.sequence(index)) for index in batch]
    ids = pad_sequence(rows, batch_first=True, padding_value=treebank.tokenizer.pad_id)
    owner_of = pad_sequence(owners, batch_first=True, padding_value=-1)
    belongs = (owner_of[:, None] == torch.arange(_EDGES + num_words)[:, None]).float()  # of a token to a word
    ids, belongs = (each.to(encoder.word_embeddings.device) for each in (ids, belongs))
    layers = encoder.forward_in_detail(ids, torch.zeros_like(ids), belongs.sum(1).long()).layers
    sums, means = belongs[:, None].mT, (belongs / belongs.sum(-1, keepdim=True).clamp(min=1))[:, None]
    return torch.cat([means @ layer.probabilities.float() @ sums for layer in layers], dim=1)


@torch.no_grad()
def head_hits(
    encoder: Encoder,
    treebank: Treebank,
    batches: Iterable[list[int]],
    also: Callable[[list[int], Tensor], None] = lambda batch, attention: None,
) -> Bools:
    """Return whether each head finds each word's head [T, 2 K], first in one direction, then in the other.

    The guess is the word that a word attends to most, then the one that attends to it most, of the other words: in both
    directions a guess for the dependent, as in the notebook. `also` is given each batch and its `word_attention`.
    """
    hits: Any = None
    for batch in batches:
        attention = word_attention(encoder, treebank, batch)
        (places, is_word), words = treebank.places(batch), attention[:, :, _EDGES:, _EDGES:]
        both = torch.cat([words, words.mT], dim=1)
        guessed = _but_itself(both, is_word, -1.0).argmax(-1).cpu().numpy() + 1  # [B, 2 K, W]
        hits = np.zeros((len(treebank.heads), guessed.shape[1]), dtype=np.bool_) if hits is None else hits
        hits[places[is_word]] = (guessed == treebank.heads[places][:, None]).swapaxes(1, 2)[is_word]
        also(batch, attention)
    return hits


def _but_itself(scores: Tensor, is_word: Bools, value: float) -> Tensor:
    """Fill the scores [B, K, W, W] of a word for itself, and of what is no word."""
    itself = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    return scores.masked_fill(itself | ~torch.from_numpy(is_word).to(scores.device)[:, None, None], value)


def offset_hits(treebank: Treebank) -> Bools:
    """Return whether the word at each of `OFFSETS` is the head [T, offsets].

    Beyond the edge of a sentence it is the word at the edge, as in the notebook, or the one next to that where it would
    be the word itself: a head of attention always names a word, too.
    """
    sizes, offsets = np.diff(treebank.starts), np.array(OFFSETS)
    places = np.concatenate([np.arange(1, size + 1) for size in sizes])[:, None]
    guessed = np.clip(places + offsets, 1, np.repeat(sizes, sizes)[:, None])
    guessed = np.where(guessed == places, places - np.sign(offsets), guessed)
    return (guessed == treebank.heads[:, None]) & (treebank.heads > 0)[:, None]


def evenly_spread(sentences: Sequence[Any], count: int) -> list[Any]:
    """Return at most `count` sentences, evenly spread."""
    count = min(count, len(sentences))
    return [sentences[number * len(sentences) // count] for number in range(count)]


def halves(sentences: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Cut a treebank near its middle, between two documents if it has several."""
    starts = [at for at in range(1, len(sentences)) if sentences[at].document != sentences[at - 1].document]
    at = min(starts, key=lambda place: abs(place - len(sentences) // 2), default=len(sentences) // 2)
    return sentences[:at], sentences[at:]


def relations_of(*treebanks: Treebank, min_examples: int) -> list[str]:
    """Return the relations with so many examples in each treebank, the most frequent first, without root and punct."""
    names = (str(name) for name, _ in Counter(treebanks[0].relations).most_common() if name not in ("root", "punct"))
    return [name for name in names if min(len(bank.rows(name)) for bank in treebanks) >= min_examples]


class AttentionParser(nn.Module):
    """The attention-only probe: the score of a candidate head is a weighted sum of attentions in both directions.

    A root is scored by the attention to the special tokens, as in the notebook.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(2, num_heads))
        self.edges = nn.Parameter(torch.ones(_EDGES))
        self._stored: list[tuple[Tensor, Tensor, Bools]] = []

    def forward(self, attention: Tensor, is_word: Bools) -> Tensor:
        """Return scores [B, W, 1 + W] of the root and of each word as the head of each word."""
        there, back = torch.einsum("dk,bkij->dbij", self.weights, attention.float())
        scores = (there + back.mT)[:, _EDGES:]
        words = _but_itself(scores[:, None, :, _EDGES:], is_word, -torch.inf)[:, 0]
        return torch.cat([scores[..., :_EDGES] @ self.edges[:, None], words], dim=-1)

    def store(self, treebank: Treebank, batch: list[int], attention: Tensor) -> None:
        """Store a batch to fit on, in fp16; of a large treebank, only evenly spread sentences."""
        every = -(-len(treebank.words) // _MOST_SENTENCES)
        if chosen := [number for number, index in enumerate(batch) if not index % every]:
            places, is_word = treebank.places([batch[number] for number in chosen])
            targets = torch.from_numpy(np.where(is_word, treebank.heads[places], -1)).to(attention.device)
            width = is_word.shape[1] + _EDGES
            self._stored.append((attention[chosen, :, :width, :width].half(), targets, is_word))

    def fit(self) -> None:
        """Fit on what is stored, and forget it; so few weights need no choice of when to stop."""
        optimizer, order = torch.optim.Adam(self.parameters(), lr=_LEARNING_RATE), generator(0, "parser")
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, _EPOCHS * len(self._stored))
        for number in (place for _ in range(_EPOCHS) for place in order.permutation(len(self._stored))):
            attention, targets, is_word = self._stored[number]
            scores = self(attention, is_word).flatten(0, 1)
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores, targets.flatten(), ignore_index=-1).backward()
            optimizer.step()
            schedule.step()
        self._stored.clear()

    def parse(self, treebank: Treebank, right: Bools, batch: list[int], attention: Tensor) -> None:
        """Set in `right` [T] for which words of a batch the best candidate is the head."""
        places, is_word = treebank.places(batch)
        guessed = self(attention, is_word).argmax(-1).cpu().numpy()
        right[places[is_word]] = (guessed == treebank.heads[places])[is_word]
