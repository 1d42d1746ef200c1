"""Agreement of an ONNX file with the PyTorch model: largest difference of outputs, and agreement of decisions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from bertline.export.onnx_files import open_session
from bertline.export.verification import CHECKED_TEXTS
from bertline.export.views import Architecture, ModelView, without_padding
from bertline.finetuning.encoding import Sequences, encode_texts, scoring_batches
from bertline.finetuning.token_marks import case_of, with_shared_marked
from bertline.finetuning.word_windows import encode_words
from bertline.foundation.files import read_json
from bertline.modeling.huggingface import CONFIG_NAME
from bertline.tasks.conll import is_visible
from bertline.tasks.metrics.correlation import spearman
from bertline.tasks.stored_rows import TaggedRows
from bertline.tasks.tags import OUTSIDE
from bertline.tokenization.tokenizer import Tokenizer

Decision = Literal["label", "labels", "score", "token", "token_score", "span", "vector"]
"""Decision that is compared: `label`, the predicted label of a text; `labels`, each label of a multi-label text;
`score`, the order of texts by a score; `token`, the predicted label or vocabulary entry of each token; `token_score`,
the order of tokens by a score; `span`, start and end of an answer; `vector`, the order of pairs of texts by the cosine
of their vectors."""

Marks = Literal["none", "shared_tokens", "word_case"]
"""Kind of token marks that a model reads besides token ids (`finetuning.token_marks`)."""

_NUM_TEXTS = 256
_BATCH_SIZE = 16
# Columns of a predictions table with the model's inputs, by kind of task; `text_pair` may be missing.
_INPUT_COLUMNS = (("question", "context"), ("query", "first_document"), ("query", "predicted"), ("text", "text_pair"))
Outputs = list[tuple[NDArray[np.float32], ...]]
"""Tuples of output arrays, one per batch."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of an ONNX file with the PyTorch model in fp32."""

    max_difference: float
    """Largest absolute difference of an output value, padding excluded."""
    decisions: float
    """Fraction of equal decisions or, for `score`, `token_score` and `vector`, Spearman's rank correlation."""


def decision_of(folder: Path, architecture: Architecture) -> Decision:
    """Return the kind of decision that a model's outputs are used for, and in which two formats must agree."""
    settings = read_json(folder / CONFIG_NAME)
    single = len(settings.get("id2label") or {}) == 1
    match architecture:
        case "BertForSequenceClassification":
            if settings.get("problem_type") == "multi_label_classification":
                return "labels"
            return "score" if single else "label"
        case "BertForTokenClassification":
            return "token_score" if single else "token"
        case "BertForQuestionAnswering":
            return "span"
        case "BertModel":
            return "vector"
        case _:
            return "token"


def checked_sequences(
    folder: Path, architecture: Architecture, predictions: Path, *, max_length: int, marks: Marks
) -> Sequences:
    """Encode the first test rows of a task as the model reads them, truncated or, for marked words, split into windows.

    Args:
        folder: Folder of the model, with its tokenizer.
        architecture: `BertModel` reads the two texts of a pair separately.
        predictions: The sweep's predictions.parquet. `CHECKED_TEXTS` replace it if it is missing or has no input
            columns.
        max_length: Maximum number of tokens of a sequence.
        marks: Kind of token marks that the model reads.
    """
    texts, text_pairs = _checked_texts(predictions)
    if architecture == "BertModel":
        texts, text_pairs = [*texts, *(text_pairs or ())], None
    tokenizer = Tokenizer.load(folder)
    if marks == "word_case":
        words = [list(filter(is_visible, text.split())) for text in texts]
        rows = TaggedRows(texts, texts, words, [[OUTSIDE] * len(of_text) for of_text in words])
        return encode_words(rows, [OUTSIDE], tokenizer, max_length=max_length, overlap=0, mark=case_of).sequences
    sequences = encode_texts(texts, text_pairs, tokenizer, max_length=max_length)
    return with_shared_marked(sequences, tokenizer) if marks == "shared_tokens" else sequences


def _checked_texts(predictions: Path) -> tuple[list[str], list[str] | None]:
    if predictions.exists():
        table = pq.read_table(predictions).slice(0, _NUM_TEXTS)
        for first, second in _INPUT_COLUMNS:
            if {first, second} - {"text_pair"} <= {*table.column_names}:
                has_pairs = second in table.column_names and table[second].null_count == 0
                return table[first].to_pylist(), table[second].to_pylist() if has_pairs else None
    return list(CHECKED_TEXTS), None


def torch_outputs(view: ModelView, sequences: Sequences) -> Outputs:
    """Return the outputs of the PyTorch model by batch."""
    with torch.no_grad():
        return [
            tuple(output.numpy() for output in view(*(batch[name] for name in view.input_names)))
            for _, batch in scoring_batches(sequences, batch_size=_BATCH_SIZE)
        ]


def onnx_outputs(path: Path, sequences: Sequences) -> Outputs:
    """Return the outputs of an ONNX file by batch."""
    session = open_session(path)
    return [
        tuple(session.run(None, {each.name: batch[each.name].numpy() for each in session.get_inputs()}))
        for _, batch in scoring_batches(sequences, batch_size=_BATCH_SIZE)
    ]


def compare(found: Outputs, expected: Outputs, sequences: Sequences, decision: Decision) -> Agreement:
    """Compare the outputs of two models, without padding."""
    batches = scoring_batches(sequences, batch_size=_BATCH_SIZE)
    masks = [batch["attention_mask"].numpy().astype(bool) for _, batch in batches]
    differences = [
        np.abs(without_padding(one, mask) - without_padding(other, mask)).max()
        for ours, theirs, mask in zip(found, expected, masks, strict=True)
        for one, other in zip(ours, theirs, strict=True)
    ]
    one, other = (_decided(outputs, masks, decision) for outputs in (found, expected))
    in_order = decision in ("score", "token_score", "vector")
    agreement = _agreement_of_order(one, other) if in_order else float(np.mean(one == other))
    # NumPy's max propagates NaN, which no tolerance accepts.
    return Agreement(float(np.max(differences)), agreement)


def _decided(outputs: Outputs, masks: list[NDArray[np.bool_]], decision: Decision) -> NDArray:
    """Return the decisions that outputs lead to, or the values that give an order, as one array."""
    logits = [arrays[0] for arrays in outputs]
    if decision in ("token", "token_score"):
        logits = [values[mask] for values, mask in zip(logits, masks, strict=True)]
    match decision:
        case "label" | "token":
            parts = [values.argmax(-1) for values in logits]
        case "labels":
            parts = [values > 0 for values in logits]
        case "score" | "token_score":
            parts = [values.astype(np.float64) for values in logits]
        case "span":
            parts = [_span(arrays, mask) for arrays, mask in zip(outputs, masks, strict=True)]
        case "vector":
            parts = [_cosines(logits, masks)]
    return np.concatenate([part.ravel() for part in parts])


def _span(outputs: tuple[NDArray[np.float32], ...], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return [B], start and end of each span encoded as one integer."""
    start, end = (np.where(mask, logits, -np.inf).argmax(-1) for logits in outputs)
    return start * mask.shape[1] + end


def _cosines(hidden_states: list[NDArray[np.float32]], masks: list[NDArray[np.bool_]]) -> NDArray[np.float64]:
    """Return the cosine similarity of all pairs of texts, from mean-pooled vectors."""
    weights = [mask[..., None].astype(np.float64) for mask in masks]
    pooled = [(states * weight).sum(1) / weight.sum(1) for states, weight in zip(hidden_states, weights, strict=True)]
    vectors = np.concatenate(pooled)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors @ vectors.T)[np.triu_indices(len(vectors), k=1)]


def _agreement_of_order(found: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation; 1 if all values on both sides are equal, because no order differs."""
    has_order = any((values != values[:1]).any() for values in (found, expected))
    return spearman(found, expected) if has_order else 1.0
