"""Agreement of an ONNX file with the PyTorch model: largest difference of outputs, and agreement of decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertline.export.onnx_files import open_session
from bertline.export.views import INPUT_NAMES, ModelView
from bertline.finetuning import word_case
from bertline.finetuning.encoding import Sequences, encode_texts, scoring_batches
from bertline.finetuning.shared_tokens import with_shared_marked
from bertline.finetuning.word_windows import encode_words
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


def checked_texts(predictions: Path, fallback: tuple[str, ...]) -> tuple[list[str], list[str] | None]:
    """Return texts, and second texts for pairs, of the first test rows of a task.

    Args:
        predictions: Path of the sweep's predictions.parquet; may be missing.
        fallback: Texts to return if it is missing or has no input columns.
    """
    if predictions.exists():
        table = pq.read_table(predictions).slice(0, _NUM_TEXTS)
        for first, second in _INPUT_COLUMNS:
            if first not in table.column_names or (second not in table.column_names and second != "text_pair"):
                continue
            has_pairs = second in table.column_names and table[second].null_count == 0
            return table[first].to_pylist(), table[second].to_pylist() if has_pairs else None
    return list(fallback), None


def encoded_texts(
    texts: list[str], text_pairs: list[str] | None, tokenizer: Tokenizer, *, max_length: int, marks: Marks
) -> Sequences:
    """Encode texts as the model reads them, with token marks; truncated or, for marked words, split into windows."""
    match marks:
        case "none":
            return encode_texts(texts, text_pairs, tokenizer, max_length=max_length)
        case "shared_tokens":
            return with_shared_marked(encode_texts(texts, text_pairs, tokenizer, max_length=max_length), tokenizer)
        case "word_case":
            words = [text.split() for text in texts]
            rows = TaggedRows(texts, texts, words, [[OUTSIDE] * len(of_text) for of_text in words])
            return encode_words(
                rows, [OUTSIDE], tokenizer, max_length=max_length, overlap=0, mark=word_case.case_of
            ).sequences
        case _:
            assert_never(marks)


def torch_outputs(view: ModelView, sequences: Sequences) -> Outputs:
    """Return the outputs of the PyTorch model by batch."""
    with torch.no_grad():
        return list(_outputs(lambda batch: tuple(x.numpy() for x in view(*(batch[n] for n in INPUT_NAMES))), sequences))


def onnx_outputs(path: Path, sequences: Sequences) -> Outputs:
    """Return the outputs of an ONNX file by batch."""
    session = open_session(path)
    return list(_outputs(lambda batch: tuple(session.run(None, {n: batch[n].numpy() for n in INPUT_NAMES})), sequences))


def _outputs(
    run: Callable[[dict[str, Tensor]], tuple[NDArray[np.float32], ...]], sequences: Sequences
) -> Iterator[tuple[NDArray[np.float32], ...]]:
    for _, batch in scoring_batches(sequences, batch_size=_BATCH_SIZE):
        yield run(batch)


def compare(found: Outputs, expected: Outputs, sequences: Sequences, decision: Decision) -> Agreement:
    """Compare the outputs of two models, without padding."""
    masks = [batch["attention_mask"].numpy().astype(bool) for _, batch in scoring_batches(sequences, batch_size=16)]
    differences = [
        np.abs(_real(one, mask) - _real(other, mask)).max()
        for ours, theirs, mask in zip(found, expected, masks, strict=True)
        for one, other in zip(ours, theirs, strict=True)
    ]
    # NumPy's max propagates NaN, which no tolerance accepts.
    return Agreement(float(np.max(differences)), _decisions(found, expected, masks, decision))


def _real(values: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return values of shape [B, ...] unchanged, and those of shape [B, S, ...] without padding."""
    return values[mask] if values.shape[:2] == mask.shape and values.ndim + 1 > mask.ndim else values


def _decisions(found: Outputs, expected: Outputs, masks: list[NDArray[np.bool_]], decision: Decision) -> float:
    match decision:
        case "label":
            return _share([(a[0].argmax(-1), b[0].argmax(-1)) for a, b in zip(found, expected, strict=True)])
        case "labels":
            return _share([(a[0] > 0, b[0] > 0) for a, b in zip(found, expected, strict=True)])
        case "token":
            return _share(
                [
                    (a[0][mask].argmax(-1), b[0][mask].argmax(-1))
                    for a, b, mask in zip(found, expected, masks, strict=True)
                ]
            )
        case "span":
            return _share([(_span(a, mask), _span(b, mask)) for a, b, mask in zip(found, expected, masks, strict=True)])
        case "score":
            return _agreement_of_order(_joined([a[0] for a in found]), _joined([b[0] for b in expected]))
        case "token_score":
            ours, theirs = ([a[0][mask] for a, mask in zip(x, masks, strict=True)] for x in (found, expected))
            return _agreement_of_order(_joined(ours), _joined(theirs))
        case "vector":
            return _agreement_of_order(_cosines(found, masks), _cosines(expected, masks))


def _share(pairs: list[tuple[NDArray, NDArray]]) -> float:
    return float(np.mean(np.concatenate([np.ravel(a == b) for a, b in pairs])))


def _span(outputs: tuple[NDArray[np.float32], ...], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return [B], start and end of each span encoded as one integer."""
    start, end = (np.where(mask, logits, -np.inf).argmax(-1) for logits in outputs)
    return start * mask.shape[1] + end


def _joined(parts: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    return np.concatenate([part.ravel() for part in parts]).astype(np.float64)


def _cosines(outputs: Outputs, masks: list[NDArray[np.bool_]]) -> NDArray[np.float64]:
    """Return the cosine similarity of all pairs of texts, from mean-pooled vectors."""
    pooled = []
    for (hidden_states, *_), mask in zip(outputs, masks, strict=True):
        weights = mask[..., None].astype(np.float64)
        pooled.append((hidden_states * weights).sum(1) / weights.sum(1))
    vectors = np.concatenate(pooled)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors @ vectors.T)[np.triu_indices(len(vectors), k=1)]


def _agreement_of_order(found: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation; 1 if all values on both sides are equal, because no order differs."""
    has_order = any((values != values[:1]).any() for values in (found, expected))
    return spearman(found, expected) if has_order else 1.0
