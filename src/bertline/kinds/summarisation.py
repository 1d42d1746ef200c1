"""Extractive summarisation: the vector of each sentence's own [CLS] predicts whether it belongs in the summary.

References: Liu 2019, arXiv 1903.10318, section 2.1 (a [CLS] and an interval segment for each sentence) and 2.2 (the
simple classifier); Liu and Lapata 2019, arXiv 1908.08345, sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.corpus.tables import JSON_LINES, TableRow, parsed_records, value_in
from bertline.demo.docstrings import ModuleDocs
from bertline.foundation.bad_rows import BadRow, BadRows
from bertline.foundation.checked import PositiveInt
from bertline.foundation.labels import IGNORED_LABEL
from bertline.kinds.base import Batch, Calibration, LossOptions, Statistics
from bertline.kinds.html import escape, plain, quote, shortened
from bertline.kinds.sentence_labelling import (
    EncodedSentences,
    OfSentences,
    SentenceReader,
    encode_documents,
    sentences_of,
    text_of,
)
from bertline.kinds.usage import Usage
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.metrics.rouge import ngrams, overlap_f1, rouge, rouge_words
from bertline.tasks.source_config import SummariesSourceConfig
from bertline.tasks.source_files import read_splits
from bertline.tasks.stored_rows import BuiltTask, SummaryRows

if TYPE_CHECKING:
    from bertline.kinds.base import Baseline, BaselineInputs, Machine, Tensor, Tokenizer, nn


@dataclass(frozen=True, kw_only=True, slots=True)
class SummarisationTaskConfig(BaseTaskConfig):
    """Extractive summarisation: select sentences; each sentence has its own [CLS] (BertSum, arXiv 1903.10318)."""

    kind: Literal["summarisation"]
    source: SummariesSourceConfig
    num_sentences: PositiveInt
    """Number of sentences of a summary."""
    metric: Literal["rouge1", "rouge2", "rougeL"]
    """Metric on dev that selects trials; higher is better."""


class SummarisedDocument(NamedTuple):
    """A document of a source with its summary."""

    id: str
    sentences: list[str]
    summary: str


class Summary(NamedTuple):
    """Extractive summary of a document."""

    text: str
    """Chosen sentences, joined by spaces."""
    sentences: tuple[str, ...]
    """Chosen sentences, in document order."""
    places: tuple[int, ...]
    """Indices of the chosen sentences in the document, from 0."""
    scores: tuple[float, ...]
    """Probability of each chosen sentence."""


class Summarisation(SentenceReader[SummaryRows]):
    """Selects the `num_sentences` sentences with the highest probabilities, in document order.

    Predictions are the probabilities of each document's sentences. Training uses the first group of each document.
    """

    config_class = SummarisationTaskConfig
    rows_class = SummaryRows
    outputs = ("summary",)
    independent = True
    blank = ("",)  # summaries
    score_names = ("rouge1", "rouge2", "rougeL")
    answers = (Summary,)
    output_schema = pa.schema([("summary", pa.string()), ("sentences", pa.list_(pa.int64()))])
    asks = "Extractive summarisation: choose the sentences of a document that make the best summary."

    @staticmethod
    def build(name: str, config: SummarisationTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        splits, dropped = read_splits(config, read_summaries, same=text_of, name="document")
        stored = {
            split: SummaryRows.of(
                (*row, chosen_sentences(row.sentences, row.summary, most=config.num_sentences)) for row in rows
            )
            for split, rows in splits.items()
        }
        return BuiltTask(splits={**stored}, dropped=dropped)

    # ---- the model

    def encode(self, rows: SummaryRows, tokenizer: Tokenizer) -> EncodedSentences:
        return encode_documents(rows.sentences, rows.chosen, tokenizer, max_length=self.config.max_length)

    def label_counts(self, rows: SummaryRows) -> NDArray[np.int64]:
        return np.bincount([label for chosen in rows.chosen for label in chosen], minlength=2)

    def trained_on(self, encoded: EncodedSentences) -> NDArray[np.int64]:
        return np.flatnonzero(encoded.is_first)

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean binary cross-entropy over the sentences of the batch, weighted by class weights if given."""
        import torch.nn.functional as F

        logits = outputs[..., 0].float()
        labelled = batch["labels"] != IGNORED_LABEL
        labels = batch["labels"][labelled]
        targets = options.smoothed(labels.float())
        weights = None if options.class_weights is None else options.class_weights[labels]
        losses = F.binary_cross_entropy_with_logits(logits[labelled], targets, weight=weights, reduction="sum")
        return losses / (len(labels) if weights is None else weights.sum())

    def predict(self, model: nn.Module, encoded: EncodedSentences, machine: Machine) -> OfSentences:
        return [each[:, 0] for each in super().predict(model, encoded, machine)]

    def statistics(self, rows: SummaryRows, predictions: OfSentences, calibration: Calibration) -> Statistics:
        """Return the F1 of ROUGE-1, ROUGE-2 and ROUGE-L, [N, 3]."""
        return self._rouge(rows, map(self._chosen, predictions))

    def table(self, rows: SummaryRows, predictions: OfSentences, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `score` is the mean probability of the chosen sentences, `correct` is ROUGE-1."""
        chosen = [*map(self._chosen, predictions)]
        return pa.table(
            {
                "id": rows.ids,
                "text": [" ".join(sentences) for sentences in rows.sentences],
                "gold": rows.summaries,
                "predicted": [_joined(*pair) for pair in zip(rows.sentences, chosen, strict=True)],
                "score": [float(of_row[places].mean()) for of_row, places in zip(predictions, chosen, strict=True)],
                "correct": self._rouge(rows, chosen)[:, 0],
            }
        )

    def details(self, rows: SummaryRows, predictions: OfSentences, calibration: Calibration) -> dict[str, Any]:
        """Return `oracle`: the scores of the gold sentences that training uses as targets."""
        return {"oracle": self.scores(self._rouge(rows, map(np.flatnonzero, rows.chosen)))}

    def is_degenerate(self, rows: SummaryRows, predictions: OfSentences, calibration: Calibration) -> bool:
        every = np.concatenate(predictions)
        return len(every) > 1 and float(every.max() - every.min()) < 1e-4

    def _chosen(self, probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the indices of the best sentences of a document, ascending; ties go to the first."""
        return np.sort(np.argsort(-probabilities, kind="stable")[: self.config.num_sentences])

    def _rouge(self, rows: SummaryRows, chosen: Iterable[NDArray[np.integer]]) -> Statistics:
        scores = [
            rouge(_joined(sentences, places), summary)
            for sentences, places, summary in zip(rows.sentences, chosen, rows.summaries, strict=True)
        ]
        values = [[of_row[name] for name in self.score_names] for of_row in scores]
        return np.array(values).reshape(-1, len(self.score_names))

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Return the baseline that scores sentences by position, of which the task selects the first `num_sentences`:
        hard to beat on news."""

        def earlier_first(rows: SummaryRows) -> OfSentences:
            """Return scores of the sentences, from 1 towards 0."""
            return [np.linspace(1, 0, len(sentences), endpoint=False) for sentences in rows.sentences]

        return [inputs.baseline("first_sentences", "first sentences of the document", earlier_first)]

    def served_document(self, sentences: list[str], probabilities: NDArray[np.float64]) -> Summary:
        best = self._chosen(probabilities)
        chosen = tuple(sentences[place] for place in best)
        return Summary(" ".join(chosen), chosen, tuple(best.tolist()), tuple(probabilities[best].tolist()))

    def file_output(self, predicted: Summary) -> dict[str, Any]:
        return {"summary": predicted.text, "sentences": list(predicted.places)}

    @staticmethod
    def error_block(error: dict[str, Any]) -> str:
        parts = (("summary", error["gold"]), ("chosen", error["predicted"]))
        return quote("".join(f"<p><small>{name}</small> {escape(shortened(plain(x)))}</p>" for name, x in parts), "")

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        return Usage(
            what=f"Sums a document up by {self.config.num_sentences} of its own sentences.",
            tag="summarization",
            pipeline=False,
            snippets=('import bertline\n\nbertline.load("NAME").predict(["A long document. With many sentences."])',),
            limits=(
                "A summary has whole sentences of the document, nothing else: what they refer to may be left out.",
                "Each sentence is scored from its own [CLS] (arXiv 1903.10318), which only bertline puts there.",
            ),
        )


def _joined(sentences: Sequence[str], chosen: NDArray[np.integer]) -> str:
    return " ".join(sentences[place] for place in chosen)


def read_summaries(path: Path, config: SummariesSourceConfig, bad_rows: BadRows) -> list[SummarisedDocument]:
    """Read documents as lists of sentences; a document given as text is split at line ends and into sentences."""

    def texts_in(record: TableRow, column: str) -> str | list[str]:
        value = value_in(record, column)
        if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(x, str) for x in value)):
            raise BadRow("wrong_type", f"{column!r} is neither a text nor a list of sentences")
        return value

    def parse(record: TableRow) -> SummarisedDocument:
        sentences = sentences_of(texts_in(record, document := config.document_column))
        if not sentences:
            raise BadRow("empty_document", f"the document in {document!r} is empty")
        value = texts_in(record, column := config.summary_column)
        summary = " ".join(part.strip() for part in ([value] if isinstance(value, str) else value)).strip()
        if not summary:
            raise BadRow("empty_summary", f"the summary in {column!r} is empty")
        if not rouge_words(summary):
            raise BadRow(
                "summary_without_words",
                f"the summary in {column!r} has none of the letters a to z and no digits, which are all that ROUGE "
                "counts",
            )
        return SummarisedDocument(record.where, sentences, summary)

    return parsed_records(path, JSON_LINES, bad_rows, parse)


def chosen_sentences(sentences: Sequence[str], summary: str, *, most: int) -> list[int]:
    """Select target sentences greedily: add the sentence that increases ROUGE-1 plus ROUGE-2 F1 most.

    Bigrams do not cross sentence boundaries. Ties take the first sentence. Selection stops when no sentence increases
    the score, so there may be fewer than `most` sentences, and none if the document shares no words with the summary.

    Returns:
        1 for each selected sentence, else 0.

    Reference: Liu and Lapata 2019, arXiv 1908.08345, section 4.2, after Nallapati et al. 2017, arXiv 1611.04230.

    >>> chosen_sentences(["It rained.", "The cat sat.", "The cat sat down."], "The cat sat.", most=2)
    [0, 1, 0]
    """
    right = [ngrams(rouge_words(summary), n) for n in (1, 2)]
    of_sentence = [[ngrams(rouge_words(sentence), n) for n in (1, 2)] for sentence in sentences]
    so_far = [Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()]
    chosen = [0] * len(sentences)
    best = 0.0
    for _ in range(min(most, len(sentences))):
        scores = [
            sum(overlap_f1(old + new, gold) for old, new, gold in zip(so_far, counts, right, strict=True))
            for counts in of_sentence
        ]
        gained = max((place for place, taken in enumerate(chosen) if not taken), key=scores.__getitem__)
        if scores[gained] <= best:
            break
        best = scores[gained]
        chosen[gained] = 1
        so_far = [old + new for old, new in zip(so_far, of_sentence[gained], strict=True)]
    return chosen
