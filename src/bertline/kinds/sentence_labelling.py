"""Labelling of sentences in context: the vector of each sentence's own [CLS] predicts its label.

References:
    Cohan et al. 2019, arXiv 1909.04054 (all sentences in one sequence; there a [SEP] stands for its sentence).
    Liu 2019, arXiv 1903.10318, section 2.1 (a [CLS] and an interval segment for each sentence).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.corpus.sentences import split_sentences
from bertline.corpus.tables import JSON_LINES, TableRow, parsed_records, value_in
from bertline.demo.docstrings import ModuleDocs
from bertline.encoding.sequences import Sequences, outputs_of, padded, tensors
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.errors import DataError
from bertline.foundation.labels import IGNORED_LABEL, ordered_labels
from bertline.kinds.base import Batch, Calibration, LossOptions, TaskKind, TaskRows, list_of
from bertline.kinds.classification import check_labels, counts_of_labels, with_known_labels
from bertline.kinds.inputs import require_several, require_text, require_texts, row_ids
from bertline.kinds.units import UnitLabelling
from bertline.kinds.usage import Usage, code_span
from bertline.tasks.cells import label_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.source_config import FilesSourceConfig, OnBadRow
from bertline.tasks.source_files import no_rows, read_splits, same_text
from bertline.tasks.stored_rows import BuiltTask, StoredRows, TextRows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from bertline.baselines.linear import LinearModel
    from bertline.kinds.base import Baseline, BaselineInputs, Machine, TaskPredictor, Tensor, Tokenizer, nn
    from bertline.linear.features import NgramFeatures
    from bertline.linear.model import Features

OfSentences = list[NDArray[np.float64]]
"""For each document, an array of its sentences."""
_PLACES = 10
"""Number of bins of a sentence's place, for a baseline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledSentencesSourceConfig(FilesSourceConfig):
    """JSONL files of documents, each with a list of sentences and a list of their labels."""

    kind: Literal["labelled_sentences"]
    sentences_column: str
    """Column of the list of sentences."""
    labels_column: str
    """Column of the list of their labels, one for each sentence, as texts or integers."""
    on_bad_row: OnBadRow
    """Handling of rows with a missing column, an empty sentence, lists of different lengths or an unknown label."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceLabellingTaskConfig(BaseTaskConfig):
    """One label for each sentence of a document, such as its role in an abstract (arXiv 1909.04054)."""

    kind: Literal["sentence_labelling"]
    source: LabelledSentencesSourceConfig
    labels: tuple[str, ...] | None
    """Labels in order; None takes those of the train split, by value if all are numbers, else by text. A row with
    another label is invalid."""
    metric: Literal["accuracy", "macro_f1"]
    """Metric on dev that selects trials, over all sentences; higher is better."""

    def check(self) -> None:
        check_labels(self.labels, least=2)


@dataclass(frozen=True, slots=True)
class SentenceRows(StoredRows):
    """Documents as lists of sentences, each with a label."""

    sentences: list[list[str]]
    labels: list[list[int]]
    """Indices into the manifest's `labels`, one for each sentence."""

    columns_read = ("sentences",)


class LabelledDocument(NamedTuple):
    """A document of a source."""

    id: str
    sentences: list[str]
    label: list[str]
    """Label of each sentence."""


class LabelledSentence(NamedTuple):
    """Sentence of a document with its predicted label."""

    text: str
    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class EncodedSentences:
    """Documents split into W groups of consecutive sentences, `[CLS] one [SEP] [CLS] two [SEP] ...`, in order."""

    sequences: Sequences
    """The W groups; segments A and B alternate from sentence to sentence."""
    labels: NDArray[np.int64]
    """Labels [W, S]: that of a sentence at its [CLS]; `IGNORED_LABEL` elsewhere."""
    is_first: NDArray[np.bool_]
    """Whether the group is the first of its document [W]."""
    num_sentences: NDArray[np.int64]
    """Number of sentences of each document [documents]."""
    cut: NDArray[np.bool_]
    """Whether a sentence of the document was truncated [documents]."""

    def batch(self, groups: NDArray[np.integer]) -> Batch:
        batch = self.sequences.batch(groups)
        return {**batch, **tensors(labels=self.labels[groups, : batch["input_ids"].shape[1]])}


class SentenceReader(TaskKind[TaskRows, EncodedSentences, OfSentences]):
    """Base class of the kinds that read the sentences of a document together, and decide on each at its own [CLS].

    A document longer than `max_length` is read in groups of whole sentences.
    """

    head = "tokens"
    file_columns = (("text", "text or texts"),)
    may_be_empty = False
    unweighted = ""
    blank: ClassVar[tuple[str, ...]] = ()
    """Columns of a user's rows between the sentences and their targets."""

    @abstractmethod
    def served_document(self, sentences: list[str], probabilities: NDArray[np.float64]) -> Any:
        """Return the prediction of a document from its sentences' probabilities."""

    def compared(self, outputs: Tensor, teacher: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        at_cls = batch["labels"] != IGNORED_LABEL
        return outputs[at_cls].float(), teacher[:, : at_cls.shape[1]][at_cls]

    def predict(self, model: nn.Module, encoded: EncodedSentences, machine: Machine) -> OfSentences:
        """Return the probabilities at the sentences of each document, [sentences, L]."""
        at_cls = encoded.labels != IGNORED_LABEL
        shape = (at_cls.shape[1], len(self.outputs or self.labels))
        outputs = outputs_of(model, encoded.sequences, machine, *shape, read=self.probabilities)
        probabilities = outputs[at_cls].astype(np.float64)
        # Boolean indexing is row-major, so the sentences come in document order.
        return np.split(probabilities, np.cumsum(encoded.num_sentences)[:-1]) if len(probabilities) else []

    def serve(self, predictor: TaskPredictor, texts: Sequence[str] | Sequence[Sequence[str]]) -> list[Any]:
        """Return the prediction of each document: a text, which is split into sentences, or a list of sentences, which
        are used as given."""
        documents = split_documents(texts)
        if not documents:
            return []
        numbered = zip(row_ids(len(documents)), documents, strict=True)
        rows = self.rows_class.of((row, each, *self.blank, [0] * len(each)) for row, each in numbered)
        return [self.served_document(*each) for each in zip(documents, predictor.predictions(rows), strict=True)]


class SentenceLabelling(SentenceReader[SentenceRows], UnitLabelling[SentenceRows, EncodedSentences, OfSentences]):
    """Predicts a label for each sentence. Predictions are the probabilities of each document's sentences and labels."""

    config_class = SentenceLabellingTaskConfig
    rows_class = SentenceRows
    answers = (LabelledSentence,)
    output_schema = pa.schema({"labelled": list_of(text=pa.string(), label=pa.string(), probability=pa.float64())})
    asks = "Sentence labelling: which label does each sentence of a document have?"

    @staticmethod
    def build(name: str, config: SentenceLabellingTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        splits, dropped = read_splits(
            config, labelled_documents, same=text_of, name="document", labels=lambda row: row.label
        )
        bad_rows = BadRows(config.source.on_bad_row)
        if not splits["train"]:
            raise DataError(no_rows(name, "train", dropped))
        labels = tuple(map(label_in, config.labels or ())) or ordered_labels(
            label for row in splits["train"] for label in row.label
        )
        numbers = {label: number for number, label in enumerate(labels)}
        splits = with_known_labels(f"tasks.{name}", splits, labels, bad_rows)
        stored = {
            split: SentenceRows.of((row.id, row.sentences, [numbers[label] for label in row.label]) for row in rows)
            for split, rows in splits.items()
        }
        counts = counts_of_labels(splits, labels)
        return BuiltTask(
            splits={**stored},
            labels=labels,
            dropped=bad_rows.dropped + dropped,
            targets={split: {(label,) for label in of_split if of_split[label]} for split, of_split in counts.items()},
            more={"labels_by_split": counts},
        )

    # ---- the model

    def encode(self, rows: SentenceRows, tokenizer: Tokenizer) -> EncodedSentences:
        return encode_documents(rows.sentences, rows.labels, tokenizer, max_length=self.config.max_length)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        return options.cross_entropy(outputs, batch["labels"])

    def gold(self, rows: SentenceRows) -> list[NDArray[np.int64]]:
        return [np.array(labels, dtype=np.int64) for labels in rows.labels]

    def given(self, predictions: OfSentences, calibration: Calibration) -> list[NDArray[np.int64]]:
        return [each.argmax(1) for each in predictions]

    def table(self, rows: SentenceRows, predictions: OfSentences, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `gold` and `predicted` are lists, `score` is the mean probability of the labels."""
        texts = pa.list_(pa.string())
        given = self.given(predictions, calibration)
        return pa.table(
            {
                "id": rows.ids,
                "text": rows.texts_read(),
                "sentences": pa.array(rows.sentences, texts),
                "gold": pa.array(self.names(self.gold(rows)), texts),
                "predicted": pa.array(self.names(given), texts),
                "score": [float(each.max(1).mean()) for each in predictions],
                "correct": self.shares_right(rows, given),
            }
        )

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Return the most frequent label and linear models on n-grams, with and without context, and on vectors."""
        from bertline.baselines.linear import SVMS, Grid, linear_baseline
        from bertline.baselines.vectors import MODELS, MOST_ROWS, VECTOR_NAMES, VECTOR_TITLES, text_features
        from bertline.linear.features import NgramFeatures, rows_read
        from bertline.linear.model import split_by_row

        read = _flat(inputs.train)
        words = NgramFeatures.fitted(rows_read(read, "word"), "word")
        title = "word n-grams of the sentence"
        shares = (self.label_counts(inputs.train) / max(sum(map(len, inputs.train.labels)), 1)).astype(np.float32)

        def of_documents(probabilities: NDArray[np.float32], rows: SentenceRows) -> OfSentences:
            return split_by_row(probabilities, [len(sentences) for sentences in rows.sentences])

        def fitted(name: str, title: str, features: Mapping[str, _Read], models: Sequence[LinearModel]) -> Baseline:
            def grid(rows: SentenceRows) -> Grid:
                return {option: (compute, models) for option, compute in features.items()}

            gold = (inputs.train, read.labels)
            return linear_baseline(inputs, name, title, gold, grid, setting="vectors", finished=of_documents)

        made = [
            inputs.baseline(
                "majority",
                "most frequent label",
                lambda rows: [np.tile(shares, (len(of_row), 1)) for of_row in rows.labels],
            ),
            fitted("word_ngrams", title, {"": _of_sentences(words)}, SVMS),
            fitted("context_ngrams", f"{title}, its neighbours and its place", {"": _in_context(words)}, SVMS),
        ]
        for name in VECTOR_NAMES if inputs.encoder is not None else ():
            features = text_features(name, inputs, read.first(MOST_ROWS))
            of_rows = {option: _of_sentences(compute) for option, compute in features.items()}
            made.append(fitted(name, f"{VECTOR_TITLES[name][1]}, logistic regression", of_rows, MODELS))
        return made

    def served_document(self, sentences: list[str], probabilities: NDArray[np.float64]) -> list[LabelledSentence]:
        return [
            LabelledSentence(sentence, self.labels[label], float(row[label]))
            for sentence, row, label in zip(sentences, probabilities, probabilities.argmax(1), strict=True)
        ]

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        return Usage(
            what=f"Gives each sentence of a document a label: {', '.join(map(code_span, self.labels))}.",
            tag="token-classification",
            pipeline=False,
            snippets=(
                'import bertline\n\nbertline.load("NAME").predict([["One sentence.", "The next one."]])  '
                "# text, label, probability",
            ),
            limits=(
                "Each sentence is labelled from its own [CLS], which only bertline puts there.",
                f"The sentences of a document are read together, up to {self.config.max_length} tokens; a longer "
                "document is read in groups of whole sentences.",
            ),
        )


def encode_documents(
    documents: Sequence[Sequence[str]], labels: Sequence[Sequence[int]], tokenizer: Tokenizer, *, max_length: int
) -> EncodedSentences:
    """Split documents into groups of whole sentences of at most `max_length` tokens.

    A sentence longer than that is truncated and forms its own group.

    Args:
        labels: Label of each sentence; an empty list stands for 0 everywhere.
    """
    longest = tokenizer.single.room(max_length)
    ids = iter(tokenizer.encode_literally([sentence for sentences in documents for sentence in sentences]))
    groups: list[list[tuple[list[int], int]]] = []
    is_first: list[bool] = []
    cut = np.zeros(len(documents), dtype=np.bool_)
    for row, sentences in enumerate(documents):
        room = 0
        for place in range(len(sentences)):
            whole = next(ids)
            cut[row] |= len(whole) > longest
            sentence = tokenizer.single.sequence(whole[:longest])
            if place == 0 or len(sentence) > room:
                groups.append([])
                is_first.append(place == 0)
                room = max_length
            groups[-1].append((sentence, labels[row][place] if labels[row] else 0))
            room -= len(sentence)
    tokens = [[token for sentence, _ in group for token in sentence] for group in groups]
    types = [[turn % 2 for turn, (sentence, _) in enumerate(group) for _ in sentence] for group in groups]
    at_cls = [
        [each for sentence, label in group for each in (label, *[IGNORED_LABEL] * (len(sentence) - 1))]
        for group in groups
    ]
    lengths = np.array([len(group) for group in tokens], dtype=np.int64)
    # Truncation is recorded per document.
    whole_groups = np.zeros(len(groups), dtype=np.bool_)
    return EncodedSentences(
        sequences=Sequences(padded(tokens, tokenizer.pad_id), padded(types, 0), lengths, whole_groups),
        labels=padded(at_cls, IGNORED_LABEL),
        is_first=np.array(is_first, dtype=np.bool_),
        num_sentences=np.array([len(sentences) for sentences in documents], dtype=np.int64),
        cut=cut,
    )


def text_of(row: Any) -> str:
    """Return the text of a document of a source, by which equal ones are found."""
    return same_text([" ".join(row.sentences)])


def labelled_documents(path: Path, source: LabelledSentencesSourceConfig, bad_rows: BadRows) -> list[LabelledDocument]:
    """Read the documents of a JSONL file, plain or gzip."""

    def parse(record: TableRow) -> LabelledDocument:
        sentences = [str(each).strip() for each in _list(record, source.sentences_column, (str,))]
        labels = [label_in(each) for each in _list(record, source.labels_column, (str, int))]
        if not sentences or not all(sentences):
            raise BadRow("empty_sentence", "a sentence is empty" if sentences else "the document has no sentence")
        if not all(labels):
            raise BadRow("empty_label", "a label is empty")
        if len(sentences) != len(labels):
            raise BadRow("different_lengths", f"there are {len(sentences)} sentences and {len(labels)} labels")
        return LabelledDocument(record.where, sentences, labels)

    return parsed_records(path, JSON_LINES, bad_rows, parse)


def _list(record: TableRow, column: str, types: tuple[type, ...]) -> list[object]:
    value = value_in(record, column)
    if not isinstance(value, list) or any(isinstance(each, bool) or not isinstance(each, types) for each in value):
        raise BadRow("wrong_type", f"{column!r} is not a list of {' or '.join(each.__name__ for each in types)}")
    return value


_Read = Callable[[SentenceRows], Any]
"""Function from documents to the features [T, F] of their T sentences."""


def _in_context(words: NgramFeatures) -> _Read:
    """Return features of the sentence, of the one before, of the one after, and of the place in the document."""
    from scipy.sparse import csr_matrix, hstack

    def features(rows: SentenceRows) -> csr_matrix:
        own = words(_flat(rows))
        lengths = np.array([len(sentences) for sentences in rows.sentences], dtype=np.int64)
        ends = np.cumsum(lengths)
        place = np.concatenate([np.arange(length) for length in lengths])
        from_end = np.repeat(lengths, lengths) - 1 - place
        numbers = np.arange(int(ends[-1]))
        # Zeros where there is no sentence before or after.
        before = own[np.where(place, numbers - 1, 0)].multiply((place > 0)[:, None])
        after = own[np.where(from_end, numbers + 1, 0)].multiply((from_end > 0)[:, None])
        bins = np.eye(_PLACES)
        relative = (place * _PLACES // np.repeat(lengths, lengths)).astype(np.int64)
        places = [bins[relative], bins[np.minimum(place, _PLACES - 1)], bins[np.minimum(from_end, _PLACES - 1)]]
        return hstack([own, before, after, csr_matrix(np.concatenate(places, axis=1))]).tocsr()

    return features


def _of_sentences(compute: Callable[[TextRows], Features]) -> _Read:
    return lambda rows: compute(_flat(rows))


def _flat(rows: SentenceRows) -> TextRows:
    texts = [sentence for sentences in rows.sentences for sentence in sentences]
    labels = np.array([label for of_row in rows.labels for label in of_row], dtype=np.int64)
    return TextRows([str(number) for number in range(len(texts))], texts, None, labels)


def split_documents(texts: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the sentences of each document of a user, given as text or as a list of sentences.

    Raises:
        DataError: `texts` is a single string, a list holds something other than strings, or a document has no sentence.
    """
    documents = []
    for index, value in enumerate(require_several(texts, "texts")):
        name = f"texts[{index}]"
        sentences = sentences_of(require_text(value, name) if isinstance(value, str) else require_texts(value, name))
        if not sentences:
            raise DataError(f"texts[{index}] has no sentence; leave empty documents out.")
        documents.append(sentences)
    return documents


def sentences_of(document: str | Sequence[str]) -> list[str]:
    """Return the sentences of a document: a text is split at line ends and into sentences, a list has them."""
    if isinstance(document, str):
        return [sentence for line in document.splitlines() for sentence in split_sentences(line)]
    return [sentence.strip() for sentence in document if sentence.strip()]
