"""The linear probe: what a linear classifier can read from the encoder's frozen vectors during training.

It reads held-out sentences: a third unchanged, the others corrupted in one of two ways. In *bigram shift* two adjacent
words are swapped; in *semantic odd man out* one word is replaced by another. A model that sees only the words without
their order, or only their frequencies, is at chance (0.5) on both. Only a run with the probe needs scikit-learn.

References:
    Conneau et al., What you can cram into a single vector (arXiv 1805.01070), section 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bertline.encoders.loading import LanguageModel
from bertline.examples.store import Array, ExampleStore
from bertline.foundation.progress import warn
from bertline.foundation.seeds import generator
from bertline.modeling.heads import pooled
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.plan import Plan, shuffled
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import CONTINUATION
from bertline.training.devices import Machine
from bertline.training.probe import Probe, evaluating

KINDS = ("as_is", "bigram_shift", "odd_word")

Word = tuple[int, ...]
"""Token ids of a word's subwords."""
Sentence = tuple[Word, ...]

# The paper's sentences have 5 to 28 words (section 2).
_FEWEST_WORDS, _MOST_WORDS = 5, 28
_SENTENCE_ENDS = frozenset(".!?。！？।؟")
_SPACES = "Ġ▁"
"""How byte-level BPE and SentencePiece write the space before a word."""
_TRAIN_SHARE = 2 / 3
_ALIKE_RANKS = 10
"""Largest difference in frequency rank between a word and its replacement: frequency must not reveal it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbingSentences:
    """Sentences and how each was corrupted, training sentences first."""

    sentences: tuple[Sentence, ...]
    kinds: Array
    """[N] indices into `KINDS`; balanced, give or take one, both before and after `num_train`."""
    num_train: int

    def __len__(self) -> int:
        return len(self.sentences)


def probing_sentences(store: ExampleStore, tokenizer: Tokenizer, *, max_sentences: int) -> ProbingSentences:
    """Draw at most `max_sentences`, and corrupt two thirds of them: a pure function of the examples.

    Training sentences come from the first two thirds of the examples, test sentences from the rest: the examples are in
    document order, so the two parts share at most the document at the border. No sentence is used twice, and each could
    have been corrupted in either way. All are of segment A; segment B is often random text from elsewhere.
    """
    words = _Words(tokenizer)
    border = round(len(store) * _TRAIN_SHARE)
    wanted = round(max_sentences * _TRAIN_SHARE)
    seen: set[Sentence] = set()
    train = list(islice(_new_sentences(store, range(border), words, seen), wanted))
    test = list(islice(_new_sentences(store, range(border, len(store)), words, seen), max_sentences - wanted))
    alike = _AlikeWords([*train, *test], words, seed=store.manifest["seed"])
    parts = [[sentence for sentence in part if any(word in alike for word in sentence)] for part in (train, test)]
    rng = generator(store.manifest["seed"], "probing sentences")
    numbered = [(number % len(KINDS), sentence) for part in parts for number, sentence in enumerate(part)]
    return ProbingSentences(
        sentences=tuple(_corrupted(sentence, KINDS[kind], words, alike, rng) for kind, sentence in numbered),
        kinds=np.array([kind for kind, _ in numbered], dtype=np.int64),
        num_train=len(parts[0]),
    )


class _Words:
    """Properties of words, derived from the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.is_wordpiece:
            self._continues = [token.startswith(CONTINUATION) and token != CONTINUATION for token in tokenizer.vocab]
        else:  # a letter without the mark of a space before it continues a word
            self._continues = [token[:1] not in _SPACES and token[:1].isalnum() for token in tokenizer.vocab]
        self._plain = [
            index not in tokenizer.special_ids and any(character.isalnum() for character in token.lstrip(_SPACES))
            for index, token in enumerate(tokenizer.vocab)
        ]
        self._ends = frozenset(index for index, token in enumerate(tokenizer.vocab) if token in _SENTENCE_ENDS)

    def is_plain(self, word: Word) -> bool:
        """Return whether this is a word, neither punctuation nor unknown."""
        return self._plain[word[0]]

    def of(self, ids: Sequence[int]) -> list[Word]:
        """Group subwords into words."""
        starts = [index for index, token in enumerate(ids) if not index or not self._continues[token]]
        return [tuple(ids[start:stop]) for start, stop in pairwise([*starts, len(ids)])]

    def sentences(self, segment: Sequence[int]) -> Iterator[Sentence]:
        """Split a segment after closing punctuation, or after `_MOST_WORDS` words without any."""
        sentence: list[Word] = []
        for word in self.of(segment):
            sentence.append(word)
            if word[-1] in self._ends or len(sentence) == _MOST_WORDS:
                yield tuple(sentence)
                sentence = []
        yield tuple(sentence)

    def swappable(self, sentence: Sentence) -> list[int]:
        """Return the positions where a word and its right neighbour are plain and different."""
        return [
            at
            for at, (word, right) in enumerate(pairwise(sentence))
            if word != right and self.is_plain(word) and self.is_plain(right)
        ]


class _AlikeWords:
    """For each plain word that occurs more than once, other words of similar frequency with as many subwords."""

    def __init__(self, sentences: Sequence[Sentence], words: _Words, *, seed: int) -> None:
        counts = Counter(word for sentence in sentences for word in sentence if words.is_plain(word))
        repeated = sorted(word for word, count in counts.items() if count > 1)
        # Words of equal frequency are in random order: neighbours in the vocabulary are often spelt alike.
        order = generator(seed, "ranks of words").permutation(len(repeated))
        self._ranked: dict[int, list[Word]] = {}
        self._ranks: dict[Word, int] = {}
        for word in sorted((repeated[index] for index in order), key=lambda word: -counts[word]):
            same_length = self._ranked.setdefault(len(word), [])
            self._ranks[word] = len(same_length)
            same_length.append(word)

    def __contains__(self, word: Word) -> bool:
        return word in self._ranks and len(self._ranked[len(word)]) > 1

    def another(self, word: Word, rng: np.random.Generator) -> Word:
        """Draw another word of similar frequency, at most `_ALIKE_RANKS` ranks away."""
        ranked, rank = self._ranked[len(word)], self._ranks[word]
        near = range(max(0, rank - _ALIKE_RANKS), min(len(ranked), rank + _ALIKE_RANKS + 1))
        return ranked[int(rng.choice([other for other in near if other != rank]))]


def _new_sentences(store: ExampleStore, region: range, words: _Words, seen: set[Sentence]) -> Iterator[Sentence]:
    """Yield the usable sentences of a region of the examples in random order, and add them to those seen."""
    order = shuffled(np.arange(len(region)), len(region), seed=store.manifest["seed"], epoch=0)
    for index in order.tolist():
        example = store[region[index]]
        layout = store.layout
        stop = example.first_segment_length - len(layout.between or layout.after)
        segment = example.input_ids[len(layout.before) : stop]
        for sentence in words.sentences(segment.tolist()):
            if len(sentence) >= _FEWEST_WORDS and sentence not in seen and words.swappable(sentence):
                seen.add(sentence)
                yield sentence


def _corrupted(sentence: Sentence, kind: str, words: _Words, alike: _AlikeWords, rng: np.random.Generator) -> Sentence:
    if kind == "bigram_shift":
        at = int(rng.choice(words.swappable(sentence)))
        return (*sentence[:at], sentence[at + 1], sentence[at], *sentence[at + 2 :])
    if kind == "odd_word":
        at = int(rng.choice([index for index, word in enumerate(sentence) if word in alike]))
        return (*sentence[:at], alike.another(sentence[at], rng), *sentence[at + 1 :])
    return sentence


_BATCH_TOKENS_ON_CPU = 2048
"""Measured: 8,192 took 25% longer, 32,768 took 50% longer."""
_BATCH_TOKENS_ON_GPU = 16_384
"""Few kernel launches; the widest activations of BERT-large take 128 MiB in bf16."""
_FEWEST_SENTENCES = 60
"""With fewer sentences, at most 20 are left to score on: too few for a meaningful accuracy."""
_INVERSE_REGULARISATION = 0.1
"""scikit-learn's C for standardised vectors. At 128 channels, 0.01 to 1 gave the same accuracy within 0.3 points."""


@dataclass
class LinearProbe(Probe):
    """Measures `probe/bigram_shift_accuracy` and `probe/odd_word_accuracy` on sentences not used for fitting.

    A logistic regression on the mean of the last layer's vectors predicts whether a sentence was corrupted; the encoder
    is frozen. Only the first rank runs it: all ranks have the same weights.
    """

    model: LanguageModel
    """Model being trained; its encoder runs uncompiled, since the shapes differ from those of training."""
    tokenizer: Tokenizer
    sentences: ProbingSentences
    machine: Machine
    every_steps: int

    def __post_init__(self) -> None:
        self._ids = [
            self.tokenizer.single.sequence(token for word in sentence for token in word)
            for sentence in self.sentences.sentences
        ]

    def probe(self, step: int) -> dict[str, float]:
        """Measure both accuracies; return nothing if the vectors are not finite, or on other ranks than the first."""
        if not self.machine.ranks.is_first:
            return {}
        vectors = self._vectors()
        if not np.isfinite(vectors).all():
            return {}
        return {f"probe/{KINDS[kind]}_accuracy": self._accuracy(vectors, kind) for kind in range(1, len(KINDS))}

    def _accuracy(self, vectors: Array, corrupted: int) -> float:
        """Fit a classifier on the training sentences of a kind and those as they are; return that on the test ones."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        kinds = self.sentences.kinds
        asked = (kinds == 0) | (kinds == corrupted)
        is_train = np.arange(len(kinds)) < self.sentences.num_train
        train, test = asked & is_train, asked & ~is_train
        classifier = make_pipeline(
            StandardScaler(), LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=1000, random_state=0)
        )
        classifier.fit(vectors[train], kinds[train])
        return float(classifier.score(vectors[test], kinds[test]))

    def _vectors(self) -> Array:
        """Return the mean vector of each sentence, [N, H] fp32, in the order of the sentences."""
        encoder = self.model.bert
        vectors = np.empty((len(self._ids), encoder.config.hidden_size), dtype=np.float32)
        with evaluating(encoder, self.machine) as run:
            for indices, input_ids, attention_mask in self._batches():
                ids, mask = (tensor.to(self.machine.device) for tensor in (input_ids, attention_mask))
                hidden_states = run(ids, torch.zeros_like(ids), mask).hidden_states.float()
                vectors[indices] = pooled(hidden_states, mask, "mean").cpu().numpy()
        return vectors

    def _batches(self) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Yield batches of sentences of similar length: (indices, token ids [B, S], attention mask [B, S])."""
        batch_tokens = _BATCH_TOKENS_ON_CPU if self.machine.device.type == "cpu" else _BATCH_TOKENS_ON_GPU
        by_length = sorted(range(len(self._ids)), key=lambda index: -len(self._ids[index]))
        while by_length:
            size = max(1, batch_tokens // len(self._ids[by_length[0]]))
            indices, by_length = by_length[:size], by_length[size:]
            rows = [torch.tensor(self._ids[index]) for index in indices]
            input_ids = pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad_id)
            attention_mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
            yield indices, input_ids, attention_mask


def configured_probes(job: PretrainJob, model: LanguageModel, tokenizer: Tokenizer, machine: Machine) -> list[Probe]:
    """Return the linear probe of `pretrain.linear_probe`, on held-out examples of the run's longest length.

    The list is empty if none is configured or, with a warning, if the held-out text has too few sentences.
    """
    config = job.pretrain.linear_probe
    if config is None:
        return []
    store = ExampleStore.open(job.examples_folder, "validation", max(Plan.of(job.pretrain).lengths))
    sentences = probing_sentences(store, tokenizer, max_sentences=config.max_sentences)
    if len(sentences) >= _FEWEST_SENTENCES:
        return [LinearProbe(model, tokenizer, sentences, machine, every_steps=config.every_steps)]
    warn(
        f"the held-out text has {len(sentences)} sentences to probe the encoder with, fewer than "
        f"{_FEWEST_SENTENCES}: training continues without pretrain.linear_probe."
    )
    return []
