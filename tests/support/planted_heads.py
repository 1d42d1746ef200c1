"""A made-up treebank, and an encoder one of whose heads knows one relation of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tiny
from bertline.inference.model import LoadedModel
from bertline.modeling.bert import EncodedInDetail
from bertline.modeling.layers import LayerDetail
from bertline.tokenization.tokenizer import Tokenizer

WORDS = ("verb", "thing", "which", "##s", *(f"filler{number}" for number in range(9)))
VERB, THING, WHICH = (len(tiny.SPECIAL) + place for place in range(3))


def tokenizer(folder: Path) -> Tokenizer:
    tiny.write_vocabulary(folder, WORDS)
    return Tokenizer.load(folder)


def write_treebank(path: Path, count: int, *, seed: int, documents: int = 10, plain: bool = False) -> Path:
    """Sentences of words in random order: a verb (root), its object, the object's determiner, and other words.

    `plain` writes them with words of the vocabulary of `pretraining_inputs`.
    """
    random, lines = np.random.default_rng(seed), []
    for number in range(count):
        if number % -(-count // documents) == 0:
            lines.append(f"# newdoc id = {number}")
        others = [f"filler{random.integers(9)}" for _ in range(random.integers(2, 6))]
        words = list(random.permutation(["verb", "things", "which", *others]))
        of = {
            "verb": ("root", 0),
            "things": ("obj", words.index("verb") + 1),
            "which": ("det", words.index("things") + 1),
        }
        lines.append("1-2\ttwo words\t" + "\t".join("_" * 8))
        names = {"verb": "sat", "things": "cat", "which": "the"}
        shown = [names.get(word) or "abcdefghi"[int(word[-1])] for word in words] if plain else words
        for place, word in enumerate(words, start=1):
            relation, head = of.get(word, ("dep", words.index("verb") + 1))
            if place == 2:
                lines.append("1.1\tan empty node\t" + "\t".join("_" * 8))
            lines.append(f"{place}\t{shown[place - 1]}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_")
        lines.append("")
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


class Planted(nn.Module):
    """Two layers of two heads. In 1-2 an object attends to the verb, in 2-1 an object to its determiner."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(
            num_hidden_layers=2, num_attention_heads=2, hidden_size=4, initializer_range=0.02, family="planted"
        )
        scores = torch.rand(4, vocab_size, vocab_size, generator=torch.Generator().manual_seed(0))
        scores[:, :, WHICH + 2 :] += 1.0  # all else looks at the other words
        scores[:, WHICH + 2 :] += 2.0
        scores[1, THING, VERB] = scores[2, THING, WHICH] = 9.0
        self.scores = nn.Parameter(scores)
        self.word_embeddings = nn.Parameter(torch.zeros(vocab_size, 4))

    def forward_in_detail(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> EncodedInDetail:
        scores = self.scores[:, input_ids[:, :, None], input_ids[:, None, :]].transpose(0, 1)  # [B, 4, S, S]
        probabilities = scores.masked_fill(attention_mask[:, None, None] == 0, -1e4).softmax(-1)
        return EncodedInDetail((), (LayerDetail(probabilities[:, :2]), LayerDetail(probabilities[:, 2:])))


def planted(folder: Path) -> LoadedModel:
    tokens = tokenizer(folder)
    return LoadedModel(Planted(tokens.vocab_size), tokens, max_length=16, task=None, name="planted")


def naive_hits(maps_of: Callable[[Tensor], list[list[list[float]]]], tokenizer: Tokenizer, sentences: Any) -> Any:
    """Whether each head finds each word's head in each direction: plain loops, one sentence alone.

    `maps_of` returns the attention of all heads of all layers, the lowest first, for the tokens [1, S] of a sentence.
    """
    found = []
    for sentence in sentences:
        split = [tokenizer.encode(word) for word in sentence.words]
        owner = [None] + [place for place, word in enumerate(split) for _ in word] + [None]
        ids = torch.tensor([[tokenizer.cls_id, *(token for word in split for token in word), tokenizer.sep_id]])
        size = len(split)
        between = []
        for attention in maps_of(ids):
            words = [[0.0] * size for _ in range(size)]
            for source, row in enumerate(attention):
                for target, value in enumerate(row):
                    if owner[source] is not None and owner[target] is not None:
                        words[owner[source]][owner[target]] += value / len(split[owner[source]])
            between.append(words)
        for place, head in enumerate(sentence.heads):
            others = [other for other in range(size) if other != place]
            there = [max(others, key=lambda other: words[place][other]) + 1 == head for words in between]
            back = [max(others, key=lambda other: words[other][place]) + 1 == head for words in between]
            found.append([*there, *back])
    return np.array(found)
