"""What an encoder loses without one of its heads: the loss of masked tokens, and a classifier's accuracy.

References:
    Michel, Levy and Neubig, Are Sixteen Heads Really Better than One? (arXiv 1905.10650), section 3: the output of a
    head is set to zero in a trained model.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from bertline.encoders.head_measures import Treebank, spread
from bertline.encoders.loading import Encoder
from bertline.foundation.errors import ArtifactError, DataError
from bertline.foundation.progress import progress
from bertline.foundation.seeds import generator
from bertline.foundation.verdicts import Measured, adjusted, compared, measured
from bertline.inference.model import LoadedModel
from bertline.modeling.bert import BertModel
from bertline.tasks.conll import ParsedSentence

_MASK_PROB = 0.15
Rows = NDArray[np.float64]
"""Sum and number of what is measured in each text [N, 2]."""


@contextmanager
def without_head(encoder: Encoder, layer: int, head: int) -> Iterator[None]:
    """Set the output of a head to zero, layer and head from 0: the weights that read it are zero for the time.

    Raises:
        ArtifactError: The encoder is one of transformers, whose layers are not bertline's.
    """
    if not isinstance(encoder, BertModel):
        raise ArtifactError(
            f"heads can be taken out of families with BERT's layers alone, not of {encoder.config.family}"
        )
    weight = encoder.layers[layer].attention_output.weight.data
    size = weight.shape[1] // encoder.config.num_attention_heads
    columns = weight[:, head * size : (head + 1) * size]
    stored = columns.clone()
    columns.zero_()
    try:
        yield
    finally:
        columns.copy_(stored)


def ablate_language_model(model: LoadedModel, sentences: Sequence[ParsedSentence], count: int) -> dict[str, Any]:
    """Measure the loss of masked tokens, in nats, with all heads and without each, on `count` evenly spread sentences.

    15 % of a sentence's tokens, at least one, are masked by a fixed seed, all by the mask token.

    Raises:
        ArtifactError: The model has no masked language model head, or its family has other layers.
    """
    if not hasattr(model.model, "mlm_logits"):
        raise ArtifactError(f"{model.name} has no masked language model head, so its loss cannot be measured.")
    treebank = Treebank.of(spread(sentences, count), model.tokenizer, max_length=model.max_length)
    documents = [treebank.documents[start] for start in treebank.starts[:-1]]
    return _without_each(model, lambda: _masked_losses(model, treebank), documents, "loss of masked tokens")


@torch.no_grad()
def _masked_losses(model: LoadedModel, treebank: Treebank) -> Rows:
    tokenizer, sums = model.tokenizer, np.zeros((len(treebank.words), 2))
    for batch in treebank.batches():
        rows = [torch.tensor(treebank.sequence(index)) for index in batch]
        ids = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_id)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        targets = torch.zeros_like(ids, dtype=torch.bool)
        for number, (index, row) in enumerate(zip(batch, rows, strict=True)):
            order = generator(0, "masks", index).permutation(len(row) - tokenizer.single.num_special)
            chosen = order[: max(1, round(_MASK_PROB * len(order)))] + len(tokenizer.single.before)
            targets[number, torch.from_numpy(chosen)] = True
        shown = ids.masked_fill(targets, tokenizer.mask_id).to(model.device)
        states = model.encoder(shown, torch.zeros_like(shown), mask.to(model.device)).hidden_states
        logits = model.model.mlm_logits(states[targets.to(model.device)]).cpu()
        losses = torch.nn.functional.cross_entropy(logits, ids[targets], reduction="none").split(
            targets.sum(1).tolist()
        )
        sums[batch] = [[float(each.sum()), len(each)] for each in losses]
    return sums


def ablate_classifier(model: LoadedModel, rows: Path, count: int) -> dict[str, Any]:
    """Measure the accuracy of a classifier with all heads and without each, on the first `count` rows of a CSV file.

    Raises:
        ArtifactError: The model is no classifier of one label.
        DataError: The file has no columns `text` and `label`.
    """
    if model.kind != "classification":
        raise ArtifactError(f"{model.name} is no classifier of texts, but of the kind {model.kind}.")
    with rows.open(encoding="utf-8-sig", newline="") as file:
        table = list(islice(csv.DictReader(file), count))
    if not table or not {"text", "label"} <= table[0].keys():
        raise DataError(f"{rows} must be a CSV file whose first line names the columns text and label, with rows.")

    def right() -> Rows:
        predicted = model.predict([row["text"] for row in table])
        return np.array([[one.label == row["label"], 1.0] for one, row in zip(predicted, table, strict=True)])

    return _without_each(model, right, [str(number) for number in range(len(table))], "accuracy of the task")


def _without_each(model: LoadedModel, rows: Callable[[], Rows], texts: Sequence[str], what: str) -> dict[str, Any]:
    """Measure with all heads and without each; verdicts are adjusted for the number of heads (Holm)."""

    def score() -> Measured:
        return measured([rows()], texts, lambda part: float(part[:, 0].sum() / part[:, 1].sum()), repeatable=True)

    config, whole, scores, without = model.encoder.config, score(), [], []
    for layer, head in progress([*np.ndindex(config.num_hidden_layers, config.num_attention_heads)], description=what):
        with without_head(model.encoder, layer, head):
            scores.append(score())
        without.append({"layer": layer + 1, "head": head + 1, "score": round(scores[-1].mean, 4)})
    for one, difference in zip(without, adjusted([compared(each, whole) for each in scores]), strict=True):
        one["verdict"] = difference.verdict
    return {"what": what, "texts": len(texts), "with_all": round(whole.mean, 4), "without": without}


def ablation_in_words(found: dict[str, Any]) -> str:
    """Return a sentence about the heads whose absence changes most."""
    most = sorted(found["without"], key=lambda one: -abs(one["score"] - found["with_all"]))[:3]
    changed = sum(one["verdict"] in ("better", "worse") for one in found["without"])
    named = ", ".join("{layer}-{head} ({score:.3f})".format(**one) for one in most)
    score = f"The {found['what']} on {found['texts']} texts is {found['with_all']:.3f} with all heads."
    return f"{score} {changed} of {len(found['without'])} heads change it beyond noise when out; most do {named}."
