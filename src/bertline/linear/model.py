"""A fitted linear model: predictions for rows by features and weights alone, and the folder that holds it."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from scipy.special import expit, logsumexp, softmax
from threadpoolctl import threadpool_limits

from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json, write_atomically, write_json
from bertline.foundation.manifests import require_version
from bertline.linear.features import NgramFeatures, Ngrams, PairFeatures, PairOverlap, RowFeatures, WindowFeatures
from bertline.tasks.stored_rows import TaggedRows
from bertline.tasks.tag_predictions import TagPredictions

Features = Any
"""Features [N, F], as a SciPy sparse matrix or an array."""
LinearKind = Literal["linear_svm", "logistic_regression", "complement_naive_bayes", "ridge"]
LINEAR_FILE, VOCABULARY_FILE, WEIGHTS_FILE = "linear.json", "vocabulary.json", "model.safetensors"
_FORMAT_VERSION = 1
_NEVER = -1e9


@dataclasses.dataclass(frozen=True, eq=False)
class LinearWeights:
    """Weights of a linear model, from features to numbers, probabilities or margins."""

    kind: LinearKind
    coefficients: NDArray[np.floating]
    """[K, F]: a row for each label of train; a single one for two labels and for numbers."""
    intercepts: NDArray[np.floating]
    known: NDArray[np.int64]
    """Labels that train has."""
    num_labels: int
    independent: bool = False
    """Whether each label is a decision of its own, with a row of its own."""

    def __call__(self, features: Features) -> NDArray[np.floating]:
        """Return numbers [N] (ridge) or probabilities [N, labels]; those of labels that train does not have are 0.

        Those of an SVM, which gives none, are the sigmoid or softmax of twice its margins.
        """
        scores = self._scores(features)
        if self.kind == "ridge":
            return scores[:, 0]
        if self.kind == "linear_svm":
            scores = 2 * scores
        if self.independent:
            return expit(scores).astype(np.float32)
        probabilities = np.zeros((len(scores), self.num_labels), dtype=np.float32)
        if len(self.known) == 2 and scores.shape[1] == 1:
            positive = expit(scores[:, 0])
            probabilities[:, self.known] = np.stack([1 - positive, positive], axis=1)
        elif self.kind == "complement_naive_bayes":
            probabilities[:, self.known] = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        else:
            probabilities[:, self.known] = softmax(scores, axis=1)
        return probabilities

    def margins(self, features: Features) -> NDArray[np.float64]:
        """Return margins [N, labels], the lowest for labels that train does not have."""
        scores = self._scores(features)
        all_labels = np.full((len(scores), self.num_labels), _NEVER)
        all_labels[:, self.known] = np.concatenate([-scores, scores], axis=1) if scores.shape[1] == 1 else scores
        return all_labels

    def _scores(self, features: Features) -> NDArray[np.floating]:
        with one_thread():
            return features @ self.coefficients.T + self.intercepts


@dataclasses.dataclass(frozen=True)
class Clipped:
    """Limits numbers to a scale."""

    low: float
    high: float

    def __call__(self, numbers: NDArray[np.floating], rows: Any) -> NDArray[np.floating]:
        return numbers.clip(self.low, self.high)


@dataclasses.dataclass(frozen=True, eq=False)
class LinearPredictor:
    """Features, weights, and what dev chose: predicts rows in the form of `TaskKind.predict`."""

    features: Callable[[Any], Features]
    weights: LinearWeights
    power: float = 1.0
    """Power of the probabilities that is taken and normalized: above 1 they are sharper."""
    finished: Callable[[NDArray[Any], Any], Any] | None = None
    """Makes predictions of the probabilities or numbers of some rows."""
    threshold: float = 0.0
    """Subtracted from the margin of O, the first tag."""

    @property
    def can_be_saved(self) -> bool:
        """Whether a folder can hold it: its features are of rows of texts or words alone."""
        return isinstance(self.features, RowFeatures) and isinstance(self.finished, Clipped | None)

    def __call__(self, rows: Any) -> Any:
        """Return the predictions for rows; the confidence in a word's tag is that in the softmax of its margins."""
        if isinstance(rows, TaggedRows):
            margins = self.weights.margins(self.features(rows))
            tags, shares = tags_by_margins(rows, margins, self.threshold), softmax(2 * margins, axis=1)
            of_words = shares[np.arange(len(shares)), np.concatenate(tags.labels)]
            return dataclasses.replace(tags, word_confidences=split_by_row(of_words, [*map(len, tags.labels)]))
        values = sharpened(self.weights(self.features(rows)), self.power)
        return values if self.finished is None else self.finished(values, rows)

    def save(self, folder: Path, title: str) -> None:
        """Write `linear.json`, `vocabulary.json` and `model.safetensors`: plain data, nothing pickled."""
        arrays: dict[str, NDArray[Any]] = {}
        vocabularies: dict[str, Sequence[str]] = {}
        content = _plain(self, "", arrays, vocabularies)
        write_atomically(folder / WEIGHTS_FILE, save(arrays))
        write_json(folder / VOCABULARY_FILE, vocabularies)
        write_json(folder / LINEAR_FILE, {"format_version": _FORMAT_VERSION, "title": title, "model": content})


def load_linear(folder: Path) -> tuple[LinearPredictor, str]:
    """Return the model of a folder, and its title.

    Raises:
        ArtifactError: The folder is damaged, or of another format version.
    """
    path = folder / LINEAR_FILE
    content = read_json(path)
    require_version(path, content, _FORMAT_VERSION)
    try:
        vocabularies, arrays = read_json(folder / VOCABULARY_FILE), load_file(folder / WEIGHTS_FILE)
        return _restored(content["model"], arrays, vocabularies), content["title"]
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{folder}: the model cannot be read ({error!r:.200}). Copy the folder again.") from error


_CLASSES: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        Clipped, LinearPredictor, LinearWeights, NgramFeatures, Ngrams, PairFeatures, PairOverlap, WindowFeatures
    )
}  # fmt: skip


def _plain(value: Any, name: str, arrays: dict[str, NDArray[Any]], vocabularies: dict[str, Sequence[str]]) -> Any:
    """Return a value as JSON, with its arrays and lists of texts moved to the files of their own, by their names."""
    if dataclasses.is_dataclass(value):
        parts = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        plain = {key: _plain(part, f"{name}.{key}".strip("."), arrays, vocabularies) for key, part in parts.items()}
        return {"class": type(value).__name__, **plain}
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        if value.ndim == 2 and len(used := np.flatnonzero(value.any(axis=0))) < value.shape[1] / 2:
            arrays[name], arrays[f"{name}.columns"] = np.ascontiguousarray(value[:, used]), used
            return {"array": name, "num_columns": value.shape[1]}
        return {"array": name}
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        vocabularies[name] = value
        return {"vocabulary": name}
    if isinstance(value, tuple):
        return [_plain(part, f"{name}.{place}", arrays, vocabularies) for place, part in enumerate(value)]
    return value


def _restored(content: Any, arrays: dict[str, NDArray[Any]], vocabularies: dict[str, Sequence[str]]) -> Any:
    """Return the value of which `_plain` made the content.

    Matrices are in Fortran's order: the transpose is what features are multiplied with, and SciPy copies any other.
    """
    match content:
        case {"class": name, **parts}:
            return _CLASSES[name](**{str(key): _restored(part, arrays, vocabularies) for key, part in parts.items()})
        case {"array": name, "num_columns": size}:
            whole = np.zeros((len(arrays[name]), size), dtype=arrays[name].dtype, order="F")
            whole[:, arrays[f"{name}.columns"]] = arrays[name]
            return whole
        case {"array": name}:
            return np.asfortranarray(arrays[name])
        case {"vocabulary": name}:
            return tuple(vocabularies[name])
        case list():
            return tuple(_restored(part, arrays, vocabularies) for part in content)
    return content


def sharpened(probabilities: NDArray[Any], power: float) -> NDArray[Any]:
    """Return probabilities [N, labels] of which a power, normalized, is taken; with 1 the very values."""
    if power == 1:
        return probabilities
    raised = probabilities.astype(np.float64) ** power
    return (raised / raised.sum(axis=1, keepdims=True)).astype(np.float32)


def tags_by_margins(rows: TaggedRows, margins: NDArray[np.float64], threshold: float) -> TagPredictions:
    """Return predictions, of confidence 1, from the margins of all words, [W, L]; the first label is O."""
    shifted = margins.copy()
    shifted[:, 0] -= threshold
    labels = split_by_row(shifted.argmax(axis=1), [len(words) for words in rows.words])
    return TagPredictions(labels, np.ones(len(rows)))


def split_by_row(values: NDArray[Any], lengths: Sequence[int]) -> list[NDArray[Any]]:
    """Return the values [T, ...] of each row; row n has lengths[n] of them."""
    return np.split(values, np.cumsum(lengths))[: len(lengths)]


def one_thread() -> threadpool_limits:
    """Compute dense sums in one thread, so that their rounding does not depend on the machine's cores."""
    return threadpool_limits(1)
