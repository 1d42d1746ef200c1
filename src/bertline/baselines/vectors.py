"""Baselines of texts and words: linear models on n-grams, on what a pair shares, and on an encoder's own vectors."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from bertline.baselines.base import Baseline, BaselineInputs
from bertline.baselines.linear import Grid, LinearModel, linear_baseline, tagged_by, window_tagger
from bertline.encoders.loading import load_encoder
from bertline.encoding.sequences import INPUT_NAMES, encode_texts, padded_sequences, scoring_batches, unit
from bertline.encoding.word_windows import encode_words, outputs_of_words, token_ids_of_words, word_means
from bertline.linear.features import (
    UNIT_TITLES,
    UNITS,
    NgramFeatures,
    PairFeatures,
    PairOverlap,
    TextsRows,
    Unit,
    columns,
    mean_and_scale,
    rows_read,
    standardised,
)
from bertline.linear.model import Clipped, one_thread
from bertline.modeling.checkpoint import Checkpoint
from bertline.tasks.stored_rows import TaggedRows
from bertline.tasks.tag_predictions import TagPredictions
from bertline.training.devices import Machine, evaluating

Vectors = NDArray[np.float32]
TextVectors = Callable[[Sequence[str]], Vectors]
_MOST_COMPONENTS, _MOST_FITTED = 256, 10_000
_FEWER_FITTED = 2_500
"""Number of tokens of a larger vocabulary that components are fitted to: ten times the components are enough."""
_MOST_KEPT = 100_000  # maximum number of texts to cache; the vectors of a large collection would fill the memory
_SMOOTHING = 1e-3
"""Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", section 3: a = 1e-3."""

Name = Literal["frozen_encoder", "static_embeddings"]
VECTOR_NAMES: tuple[Name, ...] = ("static_embeddings", "frozen_encoder")
VECTOR_TITLES: dict[Name, tuple[str, str, str]] = {
    "frozen_encoder": ("pooling", "frozen encoder", "frozen encoder, cosine"),
    "static_embeddings": ("weights", "static embeddings", "static embeddings, cosine"),
}
MOST_ROWS = 20_000
"""Maximum number of rows that are read, the first ones of train; the encoder has to read each of them."""
MOST_PAIRS = 100_000
"""Maximum number of pairs that are read, the first ones of train."""
_MOST_WORDS = 100_000  # of tagged rows, in whole sentences from the first on
_THRESHOLDS = tuple(step / 4 for step in range(-2, 19))
"""Thresholds for tagging: logistic regression over few features is easily too confident of O."""
_LEAST_DEVIATION = 1e-6
MODELS = tuple(LinearModel("logistic_regression", c) for c in (0.001, 0.01, 0.1, 1.0))
"""Linear models on standardised vectors from which dev chooses."""
UNIT_MODELS = tuple(LinearModel("logistic_regression", c) for c in (1.0, 10.0, 100.0))
"""Those on vectors of length 1, whose values are small."""


class FrozenEncoder:
    """Vectors of texts and words from the weights of a folder.

    The vectors of texts are cached (except for very many texts at once), and so are the static vectors of all tokens.
    A sweep passes fp32 in `machine`, whatever the precision of the run.
    """

    def __init__(self, folder: Path, machine: Machine, *, max_length: int) -> None:
        self._checkpoint = Checkpoint.open(folder)
        self.tokenizer = self._checkpoint.tokenizer
        self.pooling = self._checkpoint.pooling
        self._machine, self._max_length = machine, max_length
        self._read: dict[str, Vectors] = {}

    def choices(self, train: Sequence[str]) -> dict[str, TextVectors]:
        """Return, for each pooling, a function from N texts to their vectors [N, H]; `train` is not used."""
        return {"mean": lambda texts: self._pooled(texts)[:, 0], "cls": lambda texts: self._pooled(texts)[:, 1]}

    def static_choices(self, train: Sequence[str]) -> dict[str, TextVectors]:
        """Return, for each weighting, a function from N texts to [N, D], the mean of their tokens' static vectors.

        A token's static vector is the encoder's mean output for `[CLS] token [SEP]`, projected on the principal
        components over all tokens, of a large vocabulary over every n-th (as model2vec distils encoders for CPUs).
        `frequency` weights a token by a / (a + its share in train), `none` weights all tokens equally.
        """
        counts = np.ones(self._model.vocab_size)  # add-one smoothing: no token has probability 0
        for ids in self.tokenizer.encode_literally(list(train)):
            np.add.at(counts, ids, 1)
        weights = {"frequency": _SMOOTHING / (_SMOOTHING + counts / counts.sum()), "none": np.ones(len(counts))}
        return {name: partial(self._static_mean, weights=weight) for name, weight in weights.items()}

    def of_words(self, rows: TaggedRows, kind: Any) -> Vectors:
        """Return vectors [T, H] of the T words of some rows: the mean over a word's tokens, in the window from which
        the encoder would predict its tag."""
        encoded = encode_words(
            rows, kind.labels, self.tokenizer, max_length=self._max_length, overlap=kind.config.window_overlap
        )
        return outputs_of_words(
            self._model,
            encoded,
            self._machine,
            self._model.config.hidden_size,
            lambda outputs, batch: word_means(outputs.hidden_states, batch),
        )

    def static_of_words(self, rows: TaggedRows) -> Vectors:
        """Return vectors [T, D] of the T words of some rows: the mean of the static vectors of a word's tokens."""
        token_ids = token_ids_of_words(rows.words, self.tokenizer)
        of_tokens = self._static(token_ids.values())
        of_words = {word: of_tokens[ids].mean(axis=0) for word, ids in token_ids.items()}
        found = [of_words[word] for words in rows.words for word in words]
        return np.array(found, dtype=np.float32).reshape(-1, of_tokens.shape[1])

    def _static_mean(self, texts: Sequence[str], weights: NDArray[np.float64]) -> Vectors:
        of_texts = self.tokenizer.encode_literally(list(texts))
        of_tokens = self._static(of_texts)
        found = np.zeros((len(texts), of_tokens.shape[1]), dtype=np.float32)
        for row, ids in enumerate(of_texts):
            if ids:
                found[row] = np.average(of_tokens[ids], axis=0, weights=weights[ids])
        return found

    @cached_property
    def _model(self) -> Any:
        return load_encoder(self._checkpoint).to(self._machine.device)

    def _static(self, wanted: Iterable[Sequence[int]]) -> Vectors:
        """Return the table of static vectors [V, D], in which those of some tokens are computed."""
        components, table, known = self._static_table
        if len(new := np.array(sorted({token for ids in wanted for token in ids if not known[token]}), dtype=np.int64)):
            with one_thread():
                table[new] = components.transform(self._alone(new))
            known[new] = True
        return table

    @cached_property
    def _static_table(self) -> tuple[PCA, Vectors, NDArray[np.bool_]]:
        """Principal components, static vectors of the vocabulary [V, D], and which of them are computed [V]."""
        size = self._model.vocab_size
        fitted = np.arange(size)[:: 1 if size <= _MOST_FITTED else math.ceil(size / _FEWER_FITTED)]
        vectors = self._alone(fitted)
        components = PCA(min(_MOST_COMPONENTS, *vectors.shape), svd_solver="full")
        with one_thread():
            projected = components.fit_transform(vectors).astype(np.float32)
        table, known = np.zeros((size, projected.shape[1]), dtype=np.float32), np.zeros(size, dtype=bool)
        table[fitted], known[fitted] = projected, True
        return components, table, known

    def _alone(self, ids: NDArray[np.int64]) -> Vectors:
        """Return the encoder's mean output [N, H] for each token by itself."""
        tokens = [self.tokenizer.single.sequence([token]) for token in ids.tolist()]
        return self._run(padded_sequences(tokens, [len(tokens[0])] * len(ids), pad_id=self.tokenizer.pad_id))[:, 0]

    def _pooled(self, texts: Sequence[str]) -> Vectors:
        """Return [N, 2, H]: the mean over a text's tokens, and the vector of [CLS]."""
        if len(texts) > _MOST_KEPT:
            return self._encoded(texts)
        new = [text for text in dict.fromkeys(texts) if text not in self._read]
        if new:
            self._read.update(zip(new, self._encoded(new), strict=True))
        return np.stack([self._read[text] for text in texts])

    def _encoded(self, texts: Sequence[str]) -> Vectors:
        return self._run(encode_texts(texts, None, self.tokenizer, max_length=self._max_length))

    def _run(self, sequences: Any) -> Vectors:
        """Return [S, 2, H]: the mean over a sequence's tokens, and the vector of [CLS]."""
        found: Vectors = np.zeros((len(sequences), 2, self._model.config.hidden_size), dtype=np.float32)
        with evaluating(self._model, self._machine) as forward:
            for indices, batch in scoring_batches(sequences):
                inputs = {name: batch[name].to(self._machine.device) for name in INPUT_NAMES}
                states = forward(*inputs.values()).hidden_states.float()
                seen = inputs["attention_mask"][..., None].float()
                found[indices, 0] = ((states * seen).sum(1) / seen.sum(1)).cpu().numpy()
                found[indices, 1] = states[:, 0].cpu().numpy()
        return found


def text_baselines(
    given: BaselineInputs,
    gold: Callable[[Any], NDArray[Any]],
    titles: tuple[str, str],
    *,
    ngrams: Sequence[LinearModel],
    overlap: Sequence[LinearModel],
    overlap_and_words: Sequence[LinearModel],
    vectors: Sequence[LinearModel],
    unit_vectors: Sequence[LinearModel] = (),
    vector_setting: str | None = None,
    finished: Clipped | None = None,
) -> list[Baseline]:
    """Fit linear models on n-grams, on what the two texts of a pair share, and on the vectors of an encoder.

    Args:
        gold: Returns what to predict for rows; see `linear_baseline`.
        titles: Name of the models of n-grams, and of the others.
        ngrams: Models from which dev chooses, as those that follow.
        overlap: Models of what the two texts of a pair share.
        vector_setting: Key of the chosen vectors in the settings; None: that of the vectors.
        finished: See `linear_baseline`.
    """
    of_ngrams, of_others = titles

    def fitted(name: str, title: str, read: Any, grid: Any, setting: str = "features") -> Baseline:
        return linear_baseline(given, name, title, (read, gold(read)), grid, setting=setting, finished=finished)

    def of_ngrams_in(unit: Unit) -> Callable[[Any], Grid]:
        return lambda rows: {"": (NgramFeatures.fitted(rows, unit), ngrams)}

    def of_overlap(rows: Any) -> Grid:
        shared, words = PairOverlap.fitted(*columns(rows)), NgramFeatures.fitted(rows, "word")
        scaling = mean_and_scale(shared(*columns(rows)), 1e-9)
        return {
            "overlap": (PairFeatures(shared, *scaling, None), overlap),
            "overlap and words": (PairFeatures(shared, *scaling, words), overlap_and_words),
        }

    def of_vectors(name: Name) -> Callable[[Any], Grid]:
        has_units = name == "frozen_encoder" and unit_vectors
        units: Grid = {"length 1": (unit_features(given), unit_vectors)} if has_units else {}
        return lambda rows: {
            **units,
            **{option: (compute, vectors) for option, compute in text_features(name, given, rows).items()},
        }

    made = []
    # Only words for pairs, where each text alone says little about the label.
    for unit_of_text in UNITS if given.train.text_pairs is None else UNITS[:1]:
        read = rows_read(given.train, unit_of_text)
        title = f"{UNIT_TITLES[unit_of_text]}, {of_ngrams}"
        made.append(fitted(f"{unit_of_text}_ngrams", title, read, of_ngrams_in(unit_of_text)))
    if given.train.text_pairs is not None:
        read = given.train.first(MOST_PAIRS)
        made.append(fitted("pair_features", f"what the two texts share, {of_others}", read, of_overlap))
    for name in VECTOR_NAMES if given.encoder is not None else ():
        setting, title, _ = VECTOR_TITLES[name]
        read = given.train.first(MOST_ROWS)
        made.append(fitted(name, f"{title}, {of_others}", read, of_vectors(name), vector_setting or setting))
    return made


def text_features(name: Name, given: BaselineInputs, train: Any) -> dict[str, Callable[[Any], Vectors]]:
    """Return, for each setting from which dev chooses, a function from rows of texts or pairs to their
    features (`of_both_texts`)."""

    def of_texts(vectors: TextVectors, rows: TextsRows) -> Vectors:
        return of_both_texts([vectors(texts) for texts in columns(rows)])

    return {
        option: standardised(partial(of_texts, vectors), train, least=_LEAST_DEVIATION)
        for option, vectors in choices_of(name, given, train).items()
    }


def unit_features(given: BaselineInputs) -> Callable[[Any], Vectors]:
    """Return a function from rows to vectors of length 1, pooled as the encoder's folder says."""
    assert given.encoder is not None
    vectors = given.encoder.choices([])[given.encoder.pooling]
    return lambda rows: of_both_texts([unit(vectors(texts)) for texts in columns(rows)])


def of_both_texts(found: list[Vectors]) -> Vectors:
    """Return the vectors of texts; of pairs, those of both texts, their absolute difference and their product."""
    if len(found) == 2:
        found = [*found, np.abs(found[0] - found[1]), found[0] * found[1]]
    return np.concatenate(found, axis=1)


def tagging_baselines(
    given: BaselineInputs, unknown: Callable[[Sequence[Counter[int]]], int], **thresholds: Sequence[float]
) -> list[Baseline]:
    """Return each word's most frequent tag, and linear taggers on a window of words and on an encoder's vectors.

    Args:
        unknown: Returns the label of words that train does not have, from how often each word of train has each label.
    """
    made = [_most_frequent_tag(given, unknown), *window_tagger(given, **thresholds)]
    for name in VECTOR_NAMES if given.encoder is not None else ():
        made += tagging_baseline(name, given, **thresholds)
    return made


def _most_frequent_tag(given: BaselineInputs, unknown: Callable[[Sequence[Counter[int]]], int]) -> Baseline:
    """Give a word the tag that it has most often in train, in this spelling; among equals, that of the first label."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for words, labels in zip(given.train.words, given.kind.gold(given.train), strict=True):
        for word, label in zip(words, labels.tolist(), strict=True):
            counts[word][label] += 1
    known = {word: most_frequent(found) for word, found in counts.items()}
    of_unknown = unknown([*counts.values()])

    def predicted(rows: TaggedRows) -> TagPredictions:
        found = [np.array([known.get(word, of_unknown) for word in words], dtype=np.int64) for words in rows.words]
        return TagPredictions(found, np.ones(len(rows)))

    return given.baseline("most_frequent_tag", "most frequent tag of each word", predicted)


def most_frequent(counts: Counter[int]) -> int:
    """Return the most frequent label; among equals, the first."""
    return min(counts, key=lambda label: (-counts[label], label))


def tagging_baseline(name: Name, given: BaselineInputs, *, thresholds: Sequence[float] = _THRESHOLDS) -> list[Baseline]:
    """Fit logistic regression on each word's vector; static vectors have no context, so the neighbours' are added."""
    encoder = given.encoder
    assert encoder is not None

    def vectors(rows: TaggedRows) -> Vectors:
        if name == "frozen_encoder":
            return encoder.of_words(rows, given.kind)
        return _with_neighbours(encoder.static_of_words(rows), [len(words) for words in rows.words])

    def features(several: Sequence[TaggedRows]) -> list[Vectors]:
        found = [vectors(rows) for rows in several]
        mean, scale = mean_and_scale(found[0], _LEAST_DEVIATION)
        for each in found:
            each -= mean
            each *= scale
        return found

    title = f"{VECTOR_TITLES[name][1]}, logistic regression"
    return tagged_by(given, name, title, features, MODELS, thresholds, most_words=_MOST_WORDS)


def rankings_by_vectors(
    given: BaselineInputs, ranked: Callable[[TextVectors, Sequence[Any]], Sequence[Any]]
) -> list[Baseline]:
    """Return rankings by the cosine of vectors, of tokens and of texts, whose settings dev chooses.

    Args:
        ranked: Returns the predictions for several lists of rows from a function from texts to vectors.
    """

    def ranking(name: Name) -> Baseline:
        setting, _, title = VECTOR_TITLES[name]
        choices = choices_of(name, given, given.train)
        best = given.best(choices, lambda option: ranked(choices[option], [given.dev])[0])
        predictions = dict(zip(given.scored, ranked(choices[best], [*given.scored.values()]), strict=True))
        return Baseline(name=name, title=title, predictions=predictions, settings={setting: best})

    return [ranking(name) for name in VECTOR_NAMES if given.encoder is not None]


def choices_of(name: Name, given: BaselineInputs, train: Any) -> dict[str, TextVectors]:
    """Return, for each setting from which dev chooses, a function from texts to their vectors."""
    assert given.encoder is not None
    choices: Callable[[Sequence[str]], dict[str, TextVectors]]
    choices = given.encoder.choices if name == "frozen_encoder" else given.encoder.static_choices
    return choices(train.texts_read()[:MOST_ROWS])


def _with_neighbours(vectors: Vectors, lengths: Sequence[int]) -> Vectors:
    """Return [T, 3 D]: the vectors of the previous word, the word itself and the next one; 0 beyond the ends of a row.

    Args:
        vectors: Vectors of words [T, D], one row after the other.
    """
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    same_row = (row_of[1:] == row_of[:-1])[:, None]
    before, after = np.zeros_like(vectors), np.zeros_like(vectors)
    before[1:] = vectors[:-1] * same_row
    after[:-1] = vectors[1:] * same_row
    return np.concatenate([before, vectors, after], axis=1)
