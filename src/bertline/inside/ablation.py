"""What an encoder loses without one of its heads: the loss of masked tokens, and a classifier's accuracy.

References:
    Michel, Levy and Neubig, Are Sixteen Heads Really Better than One? (arXiv 1905.10650), section 3: the output of a
    head is set to zero in a trained model.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertline.encoders.head_measures import Treebank, spread
from bertline.encoders.loading import Encoder
from bertline.foundation.errors import ArtifactError, DataError
from bertline.foundation.progress import progress
from bertline.foundation.seeds import generator
from bertline.foundation.verdicts import adjusted, compared, measured
from bertline.inference.model import LoadedModel
from bertline.modeling.bert import BertModel
from bertline.tasks.conll import ParsedSentence

_MASK_PROB = 0.15


@contextmanager
def without_head(encoder: Encoder, layer: int, head: int) -> Iterator[None]:
    """Set the output of a head to zero, layer and head from 0: the weights that read it are zero for the time.

    Raises:
        ArtifactError: The encoder is one of transformers, whose layers are not bertline's.
    """
    if not isinstance(encoder, BertModel):
        raise ArtifactError(
            "heads can be taken out of families with BERT's layers alone (BERT, RoBERTa, ...), not of "
            f"{encoder.config.family}."
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
    found = _without_each(
        model,
        lambda: _masked_losses(model, treebank),
        documents,
        lambda rows: float(rows[:, 0].sum() / rows[:, 1].sum()),
    )
    return {"what": "the loss of masked tokens", "texts": len(documents), **found}


@torch.no_grad()
def _masked_losses(model: LoadedModel, treebank: Treebank) -> NDArray[np.float64]:
    """Return the sum of losses and the number of targets of each sentence [N, 2]."""
    tokenizer, sums = model.tokenizer, np.zeros((len(treebank.words), 2))
    before = len(tokenizer.single.before)
    for batch in treebank.batches():
        rows = [treebank.sequence(index) for index in batch]
        ids = torch.full((len(batch), max(map(len, rows))), tokenizer.pad_id)
        mask, targets = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for number, (index, row) in enumerate(zip(batch, rows, strict=True)):
            ids[number, : len(row)], mask[number, : len(row)] = torch.tensor(row), 1
            order = generator(0, "masks", index).permutation(len(row) - tokenizer.single.num_special)
            targets[number, before + torch.from_numpy(order[: max(1, round(_MASK_PROB * len(order)))])] = True
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

    def right() -> NDArray[np.float64]:
        predicted = model.predict([row["text"] for row in table])
        return np.array([[float(one.label == row["label"])] for one, row in zip(predicted, table, strict=True)])

    names = [str(number) for number in range(len(table))]
    found = _without_each(model, right, names, lambda part: float(part.mean()))
    return {"what": "the accuracy of the task", "texts": len(table), **found}


def _without_each(
    model: LoadedModel,
    measure: Callable[[], NDArray[np.float64]],
    clusters: Sequence[str],
    score: Callable[[NDArray[np.float64]], float],
) -> dict[str, Any]:
    """Measure rows with all heads and without each; verdicts are adjusted for the number of heads (Holm)."""
    config = model.encoder.config
    places = [(layer, head) for layer in range(config.num_hidden_layers) for head in range(config.num_attention_heads)]
    results = []
    for place in progress([None, *places], description="without single heads"):
        with nullcontext() if place is None else without_head(model.encoder, *place):
            results.append(measured([measure()], clusters, score, repeatable=True))
    whole, *without = results
    differences = adjusted([compared(one, whole) for one in without])
    return {
        "with_all": round(whole.mean, 4),
        "without": [
            {"layer": layer + 1, "head": head + 1, "score": round(one.mean, 4), "verdict": difference.verdict}
            for (layer, head), one, difference in zip(places, without, differences, strict=True)
        ],
    }


def ablation_in_words(found: dict[str, Any]) -> str:
    """Return a sentence about the heads whose absence changes most."""
    most = sorted(found["without"], key=lambda one: -abs(one["score"] - found["with_all"]))[:3]
    changed = sum(one["verdict"] in ("better", "worse") for one in found["without"])
    return (
        f"Without single heads, {found['what']} on {found['texts']} texts: {found['with_all']:.3f} with all; {changed} "
        f"of {len(found['without'])} heads change it beyond noise, most of all "
        f"{', '.join(map(_named, most))}."
    )


def _named(one: dict[str, Any]) -> str:
    return f"{one['layer']}-{one['head']} ({one['score']:.3f})"
