"""Probes: the held-out losses, the best step so far, the guesses for fixed blanks, and a linear classifier."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bertline.encoders.head_measures import ALL, Treebank, evenly_spread, halves, head_hits, offset_hits, relations_of
from bertline.encoders.loading import LanguageModel
from bertline.examples.store import Array, ExampleStore
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import append_lines, keep_json_lines, read_json_lines, write_atomically
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.progress import warn
from bertline.foundation.seeds import generator
from bertline.modeling.heads import pooled
from bertline.pretraining.config import HeadProbeConfig, MaskPredictionsConfig
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.objectives.base import means, sum_names
from bertline.pretraining.plan import Plan, shuffled
from bertline.tasks.treebank import read_treebank
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import CONTINUATION, MASK
from bertline.training.devices import Machine, evaluating, sum_over_ranks

_BATCH_TOKENS = 8192
CORRUPTIONS = ("as_is", "bigram_shift", "odd_word")
"""How a sentence of the linear probe was corrupted."""
# The paper's sentences have 5 to 28 words (arXiv 1805.01070, section 2).
_FEWEST_WORDS, _MOST_WORDS = 5, 28
_SENTENCE_ENDS = frozenset(".!?。！？।؟")
_SPACES = "Ġ▁"
"""How byte-level BPE and SentencePiece write the space before a word."""
_TRAIN_SHARE = 2 / 3
# Largest difference in frequency rank between a word and its replacement: frequency must not reveal it.
_ALIKE_RANKS = 10
# Of the linear probe. Measured: 8,192 took 25% longer, 32,768 took 50% longer.
_BATCH_TOKENS_ON_CPU = 2048
# Few kernel launches; the widest activations of BERT-large take 128 MiB in bf16.
_BATCH_TOKENS_ON_GPU = 16_384

_Word = tuple[int, ...]
"""Token ids of a word's subwords."""
_Sentence = tuple[_Word, ...]


class Probe(Protocol):
    """Measurement before the first step, every `every_steps` steps, and after the last step.

    A probe must not change the model, its mode or the course of training. Probes run on every rank in the same order,
    so they may communicate; only the first rank should write files.
    """

    every_steps: int

    def probe(self, step: int) -> Mapping[str, float]:
        """Measure after `step` finished steps. The returned metrics are written to metrics.jsonl under that step."""

    def keep_up_to(self, step: int) -> None:
        """Drop the probe's own records after `step`: training resumes from there and creates them again."""
        return  # most probes keep none


@dataclass
class ValidationProbe(Probe):
    """Measures the losses and metrics of the objective, `val/NAME`, at the length of the current phase.

    The sequences are a fixed random sample of the held-out ones, with the masks of epoch 0 under `examples.seed`: the
    same masks with which the examples stage measured `unigram_entropy`.
    """

    losses: PreTrainingLosses
    """Module being trained; it runs uncompiled here, since the shapes differ from those of training."""
    folder: Path
    plan: Plan
    machine: Machine
    """Device, precision and ranks; the batches are distributed over the ranks."""
    every_steps: int
    max_sequences: int

    def __post_init__(self) -> None:
        objective, lengths = self.losses.objective, self.plan.lengths
        self._examples = MaskedExamples.by_length(self.folder, "validation", lengths, objective)

    def probe(self, step: int) -> dict[str, float]:
        examples = self._examples[self.plan.place(max(0, step - 1)).max_length]
        names = sum_names(self.losses.objective)
        sums = np.zeros(len(names) + 3)
        with evaluating(self.losses, self.machine) as run:
            for batch in self._batches(examples):
                device = self.machine.device
                computed = run({name: torch.from_numpy(values).to(device) for name, values in batch.items()})
                num_targets, num_tokens = (batch["masked_labels"] != IGNORED_LABEL).sum(), batch["attention_mask"].sum()
                num_sequences = len(batch["input_ids"]) // (1 if examples.pairs_together is None else 2)
                values = torch.stack([computed[name] for name in names]).tolist()
                sums += [*values, int(num_targets), num_sequences, int(num_tokens)]
        summed = sum_over_ranks(sums.tolist(), self.machine.device)
        total = dict(zip((*names, "targets", "sequences", "tokens"), summed, strict=True))
        return {f"val/{name}": mean for name, mean in means(self.losses.objective, total).items()}

    def _batches(self, examples: MaskedExamples) -> Iterator[dict[str, np.ndarray]]:
        count, together = min(self.max_sequences, len(examples)), examples.pairs_together or 1
        count -= count % together if count > together else 0  # a smaller group would be easier
        indices = shuffled(np.arange(count), len(examples), seed=examples.seed, epoch=0)
        size = max(1, _BATCH_TOKENS // examples.store.max_length // together) * together
        ranks = self.machine.ranks
        for start in range(size * ranks.rank, count, size * ranks.world_size):
            yield examples.batch(indices[start : start + size], epoch=0)


@dataclass
class BestStep(Probe):
    """Runs the validation probe and records the step after which the held-out loss was lowest.

    Losses at different sequence lengths are not comparable: when a phase changes the length, the search starts over.
    The measurement before the first step does not count.
    """

    validation: Probe
    """Probe that measures the loss, with the same result on every rank."""
    plan: Plan
    judged_by: str
    record: dict[str, Any] | None = None
    """Step, loss (`val/NAME`) and `max_length` of the best step, as plain data for the checkpoint."""

    def __post_init__(self) -> None:
        self.every_steps = self.validation.every_steps

    @property
    def step(self) -> int | None:
        """The best step; None if there is none yet."""
        return None if self.record is None else self.record["step"]

    def probe(self, step: int) -> Mapping[str, float]:
        """Validate and record the step if its loss is the lowest so far."""
        metrics, key = self.validation.probe(step), f"val/{self.judged_by}"
        max_length = self.plan.place(max(0, step - 1)).max_length
        is_compared = self.record is not None and self.record["max_length"] == max_length
        if step > 0 and metrics[key] < (self.record[key] if self.record and is_compared else math.inf):
            self.record = {"step": step, key: metrics[key], "max_length": max_length}
        return metrics


@dataclass
class MaskPredictionProbe(Probe):
    """Appends frames to `mask_predictions.jsonl`: for each sentence, the most likely tokens at its first blank.

    `mask_predictions.txt` in the same folder has all frames as readable text and is rewritten with every frame.
    ConfigError if a sentence is too long for the model.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    config: MaskPredictionsConfig
    path: Path
    machine: Machine
    """Device, precision and ranks; only the first rank writes."""

    def __post_init__(self) -> None:
        self.every_steps = self.config.every_steps
        self._inputs = {sentence: self._encode(sentence) for sentence in self.config.sentences}

    def probe(self, step: int) -> dict[str, float]:
        if self.machine.ranks.is_first and self._inputs:
            rows = [
                {"step": step, "sentence": sentence, "guesses": self._guesses(*inputs)}
                for sentence, inputs in self._inputs.items()
            ]
            append_lines(self.path, [json.dumps(row, ensure_ascii=False) for row in rows])
            self._write_text()
        return {}

    def keep_up_to(self, step: int) -> None:
        """Drop the frames after `step`."""
        if self.machine.ranks.is_first and self.path.exists():
            keep_json_lines(self.path, lambda row: row["step"] <= step)
            self._write_text()

    def _write_text(self) -> None:
        write_atomically(self.path.with_suffix(".txt"), mask_predictions_text(read_json_lines(self.path)))

    def _guesses(self, input_ids: Tensor, position: int) -> list[list[Any]]:
        ids = input_ids.to(self.machine.device)
        with evaluating(self.model, self.machine) as run:
            output = run(ids, torch.zeros_like(ids), torch.ones_like(ids), torch.full_like(ids[:, :1], position))
        # Embeddings may be padded: ids behind the tokenizer's stand for nothing.
        logits = output.mlm_logits[0, 0, : self.tokenizer.vocab_size]
        probabilities, guesses = logits.float().softmax(-1).topk(self.config.num_guesses)
        tokens = self.tokenizer.tokens(guesses.tolist())
        return [[token, round(prob, 6)] for token, prob in zip(tokens, probabilities.tolist(), strict=True)]

    def _encode(self, sentence: str) -> tuple[Tensor, int]:
        """Return the sentence as token ids [1, S], and the position of its first blank."""
        tokenizer = self.tokenizer
        ids = tokenizer.single.sequence(tokenizer.encode(sentence.replace(MASK, tokenizer.mask_token)))
        longest = self.model.bert.config.max_position_embeddings
        if len(ids) > longest:
            raise ConfigError(
                f"pretrain.mask_predictions.sentences has one of {len(ids)} tokens, the model has positions for "
                f"{longest}: {sentence!r}. Shorten it."
            )
        return torch.tensor([ids]), ids.index(tokenizer.mask_id)


def mask_predictions_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format mask predictions as readable text: each sentence with its guesses, newest first.

    >>> guesses = [["list", 0.5], ["##s", 0.031]]
    >>> print(mask_predictions_text([{"step": 1000, "sentence": "A [MASK].", "guesses": guesses}]), end="")
    A [MASK].
         1,000  list 50 %  ##s 3 %
    """
    predictions: dict[str, list[str]] = {}
    for row in rows:
        guesses = "  ".join(f"{token} {100 * probability:.0f} %" for token, probability in row["guesses"])
        predictions.setdefault(row["sentence"], []).append(f"{row['step']:>10,}  {guesses}\n")
    return "\n".join(f"{sentence}\n{''.join(reversed(frames))}" for sentence, frames in predictions.items())


class ProbingSentences(NamedTuple):
    """Sentences and how each was corrupted, training sentences first."""

    sentences: tuple[_Sentence, ...]
    kinds: Array
    """[N] indices into `CORRUPTIONS`; balanced, give or take one, both before and after `num_train`."""
    num_train: int


def probing_sentences(store: ExampleStore, tokenizer: Tokenizer, *, max_sentences: int) -> ProbingSentences:
    """Draw at most `max_sentences`, and corrupt two thirds of them: a pure function of the examples.

    In *bigram shift* two adjacent words are swapped; in *semantic odd man out* one word is replaced by another. A model
    that sees only the words without their order, or only their frequencies, is at chance (0.5) on both.

    Training sentences come from the first two thirds of the examples, test sentences from the rest: the examples are in
    document order, so the two parts share at most the document at the border. No sentence is used twice, and each could
    have been corrupted in either way. All are of segment A; segment B is often random text from elsewhere.

    Reference: Conneau et al., What you can cram into a single vector (arXiv 1805.01070), section 2.
    """
    words = _Words(tokenizer)
    border = round(len(store) * _TRAIN_SHARE)
    wanted = round(max_sentences * _TRAIN_SHARE)
    seen: set[_Sentence] = set()
    train = list(islice(_new_sentences(store, range(border), words, seen), wanted))
    test = list(islice(_new_sentences(store, range(border, len(store)), words, seen), max_sentences - wanted))
    alike = _alike_words([*train, *test], words, seed=store.manifest["seed"])
    parts = [[sentence for sentence in part if any(word in alike for word in sentence)] for part in (train, test)]
    rng = generator(store.manifest["seed"], "probing sentences")
    numbered = [(number % len(CORRUPTIONS), sentence) for part in parts for number, sentence in enumerate(part)]
    return ProbingSentences(
        sentences=tuple(_corrupted(sentence, CORRUPTIONS[kind], words, alike, rng) for kind, sentence in numbered),
        kinds=np.array([kind for kind, _ in numbered], dtype=np.int64),
        num_train=len(parts[0]),
    )


class _Words:
    """What the vocabulary says of words: which token continues one, is none, or ends a sentence."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._continues = [
            token.startswith(CONTINUATION) and token != CONTINUATION
            if tokenizer.is_wordpiece
            else token[:1] not in _SPACES and token[:1].isalnum()  # a letter without the mark of a space before it
            for token in tokenizer.vocab
        ]
        self._plain = [
            index not in tokenizer.special_ids and any(character.isalnum() for character in token.lstrip(_SPACES))
            for index, token in enumerate(tokenizer.vocab)
        ]
        self._ends = frozenset(index for index, token in enumerate(tokenizer.vocab) if token in _SENTENCE_ENDS)

    def is_plain(self, word: _Word) -> bool:
        """Return whether it is neither punctuation nor unknown."""
        return self._plain[word[0]]

    def of(self, ids: Sequence[int]) -> list[_Word]:
        """Group subwords into words."""
        starts = [index for index, token in enumerate(ids) if not index or not self._continues[token]]
        return [tuple(ids[start:stop]) for start, stop in pairwise([*starts, len(ids)])]

    def sentences(self, segment: Sequence[int]) -> Iterator[_Sentence]:
        """Split a segment after closing punctuation, or after `_MOST_WORDS` words without any."""
        sentence: list[_Word] = []
        for word in self.of(segment):
            sentence.append(word)
            if word[-1] in self._ends or len(sentence) == _MOST_WORDS:
                yield tuple(sentence)
                sentence = []
        yield tuple(sentence)

    def swappable(self, sentence: _Sentence) -> list[int]:
        """Return the positions where a word and its right neighbour are plain and different."""
        return [
            at
            for at, (word, right) in enumerate(pairwise(sentence))
            if word != right and self.is_plain(word) and self.is_plain(right)
        ]


def _alike_words(sentences: Sequence[_Sentence], words: _Words, *, seed: int) -> dict[_Word, list[_Word]]:
    """Return, for each plain word that occurs more than once, others of similar frequency with as many subwords."""
    counts = Counter(word for sentence in sentences for word in sentence if words.is_plain(word))
    repeated = sorted(word for word, count in counts.items() if count > 1)
    # Words of equal frequency are in random order: neighbours in the vocabulary are often spelt alike.
    order = generator(seed, "ranks of words").permutation(len(repeated))
    by_length: dict[int, list[_Word]] = {}
    for word in sorted((repeated[index] for index in order), key=lambda word: -counts[word]):
        by_length.setdefault(len(word), []).append(word)
    return {
        word: [*ranked[max(0, rank - _ALIKE_RANKS) : rank], *ranked[rank + 1 : rank + 1 + _ALIKE_RANKS]]
        for ranked in by_length.values()
        for rank, word in enumerate(ranked)
        if len(ranked) > 1
    }


def _new_sentences(store: ExampleStore, region: range, words: _Words, seen: set[_Sentence]) -> Iterator[_Sentence]:
    """Yield the usable sentences of a region of the examples in random order, and add them to those seen."""
    order, layout = shuffled(np.arange(len(region)), len(region), seed=store.manifest["seed"], epoch=0), store.layout
    for index in order.tolist():
        example = store[region[index]]
        stop = example.first_segment_length - len(layout.between or layout.after)
        segment = example.input_ids[len(layout.before) : stop]
        for sentence in words.sentences(segment.tolist()):
            if len(sentence) >= _FEWEST_WORDS and sentence not in seen and words.swappable(sentence):
                seen.add(sentence)
                yield sentence


def _corrupted(
    sentence: _Sentence, kind: str, words: _Words, alike: Mapping[_Word, Sequence[_Word]], rng: np.random.Generator
) -> _Sentence:
    if kind == "bigram_shift":
        at = int(rng.choice(words.swappable(sentence)))
        return (*sentence[:at], sentence[at + 1], sentence[at], *sentence[at + 2 :])
    if kind == "odd_word":
        at = int(rng.choice([index for index, word in enumerate(sentence) if word in alike]))
        others = alike[sentence[at]]
        return (*sentence[:at], others[int(rng.choice(len(others)))], *sentence[at + 1 :])
    return sentence


@dataclass
class LinearProbe(Probe):
    """Measures `probe/bigram_shift_accuracy` and `probe/odd_word_accuracy` on sentences not used for fitting.

    A logistic regression on the mean of the last layer's vectors predicts whether a sentence was corrupted; the encoder
    is frozen. Only the first rank runs it. It needs scikit-learn.
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
        if not self.machine.ranks.is_first:
            return {}
        vectors = self._vectors()
        if not np.isfinite(vectors).all():
            return {}
        return {
            f"probe/{CORRUPTIONS[kind]}_accuracy": self._accuracy(vectors, kind) for kind in range(1, len(CORRUPTIONS))
        }

    def _accuracy(self, vectors: Array, corrupted: int) -> float:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        kinds = self.sentences.kinds
        asked = (kinds == 0) | (kinds == corrupted)
        is_train = np.arange(len(kinds)) < self.sentences.num_train
        train, test = asked & is_train, asked & ~is_train
        # At 128 channels, C from 0.01 to 1 gave the same accuracy within 0.3 points.
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000, random_state=0))
        classifier.fit(vectors[train], kinds[train])
        return float(classifier.score(vectors[test], kinds[test]))

    def _vectors(self) -> Array:
        """Return the mean vector of each sentence, [N, H] fp32, in the order of the sentences."""
        encoder, device = self.model.bert, self.machine.device
        batch_tokens = _BATCH_TOKENS_ON_CPU if device.type == "cpu" else _BATCH_TOKENS_ON_GPU
        vectors = np.empty((len(self._ids), encoder.config.hidden_size), dtype=np.float32)
        left = sorted(range(len(self._ids)), key=lambda index: -len(self._ids[index]))  # batches of similar length
        with evaluating(encoder, self.machine) as run:
            while left:
                size = max(1, batch_tokens // len(self._ids[left[0]]))
                indices, left = left[:size], left[size:]
                rows = [torch.tensor(self._ids[index], device=device) for index in indices]
                ids = pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad_id)
                mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
                states = run(ids, torch.zeros_like(ids), mask).hidden_states.float()
                vectors[indices] = pooled(states, mask, "mean").cpu().numpy()
        return vectors


@dataclass
class HeadProbe(Probe):
    """Measures `probe/heads/RELATION`: how often the best attention head finds the syntactic head, in fp32.

    `mean` is over the relations with 20 words in each half of the sentences, `offset` the mean of the best
    fixed offsets, which no training changes. The first half chooses, the second scores. See arXiv 2309.07311 (Chen et
    al., Sudden Drops in the Loss). Sentences of more than `max_length` tokens are left out.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    config: HeadProbeConfig
    max_length: int
    machine: Machine

    def __post_init__(self) -> None:
        self.every_steps = self.config.every_steps
        used = evenly_spread(read_treebank(Path(self.config.treebank).expanduser()), self.config.max_sentences)
        self.halves = [Treebank.of(part, self.tokenizer, max_length=self.max_length) for part in halves(used)]

    def probe(self, step: int) -> dict[str, float]:
        if not self.machine.ranks.is_first:
            return {}
        encoder, names = self.model.bert, relations_of(*self.halves, min_examples=20)
        with evaluating(encoder, replace(self.machine, precision="fp32")):
            hits = [head_hits(encoder, half, half.batches()) for half in self.halves]
        scores = {name: self._score(hits, name) for name in (*names, ALL) if len(self.halves[1].rows(name))}
        offsets = [self._score([offset_hits(half) for half in self.halves], name) for name in names]
        means = {"mean": [scores[name] for name in names], "offset": offsets} if names else {}
        scores |= {name: float(np.mean(values)) for name, values in means.items()}
        return {f"probe/heads/{name}": value for name, value in scores.items()}

    def _score(self, hits: Sequence[Array], relation: str) -> float:
        first, second = (each[half.rows(relation)].mean(0) for each, half in zip(hits, self.halves, strict=True))
        return float(second[first.argmax()])


def configured_probes(job: PretrainJob, model: LanguageModel, tokenizer: Tokenizer, machine: Machine) -> list[Probe]:
    """Return the probes of `pretrain.head_probe`, and of `pretrain.linear_probe` if held-out text suffices for it."""
    config, of_heads, length = job.pretrain.linear_probe, job.pretrain.head_probe, max(Plan.of(job.pretrain).lengths)
    probes: list[Probe] = [] if of_heads is None else [HeadProbe(model, tokenizer, of_heads, length, machine)]
    if config is None:
        return probes
    store = ExampleStore.open(job.examples_folder, "validation", length)
    sentences = probing_sentences(store, tokenizer, max_sentences=config.max_sentences)
    # Of fewer sentences, at most 20 would be left to score on: too few for a meaningful accuracy.
    if (count := len(sentences.kinds)) >= 60:
        return [LinearProbe(model, tokenizer, sentences, machine, every_steps=config.every_steps), *probes]
    warn(
        f"held-out text has {count} sentences, too few to probe with: training continues without pretrain.linear_probe"
    )
    return probes
