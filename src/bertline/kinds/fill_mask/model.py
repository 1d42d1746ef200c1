"""Masked-token prediction with the pretraining head, trained as in pretraining (paper, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertline.examples.masking import MaskingPolicy, mask_rows, max_targets
from bertline.finetuning.encoding import LengthSortedBatches, Sequences, encode_texts, scoring_indices
from bertline.finetuning.task_kind import Batch, Batches, Calibration, LossOptions, Statistics, TaskKind
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.seeds import seed_for
from bertline.tasks.metrics.fill_mask import STATISTICS, pseudo_perplexity, scores_of
from bertline.tasks.stored_rows import PlainRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine
from bertline.training.probe import evaluating

# Paper, section 3.1: 80 % of the targets are replaced by [MASK], 10 % by a random token, 10 % stay unchanged.
_REPLACE_WITH_MASK_PROB, _REPLACE_WITH_RANDOM_PROB = 0.8, 0.1
# Number of input tokens in a scoring batch: each scored token takes one copy of its whole sequence.
_TOKENS_OF_A_BATCH = 8192


@dataclass(frozen=True, slots=True)
class EncodedPassages:
    """Encoded texts and the positions of their scored tokens."""

    sequences: Sequences
    keys: NDArray[np.uint64]
    """Masking seed of each row [N]: a hash of its id, so that masks do not depend on the order of the rows."""
    rows: NDArray[np.int64]
    """Row of each scored token [T], ascending."""
    positions: NDArray[np.int64]
    """Position of each scored token in its sequence [T]."""
    policy: MaskingPolicy
    vocab: tuple[str, ...]
    """Tokens of the vocabulary."""

    @property
    def gold(self) -> NDArray[np.int64]:
        """Ids of the true tokens [T]."""
        return self.sequences.input_ids[self.rows, self.positions]


@dataclass(frozen=True, slots=True)
class FilledBlanks:
    """Predictions for the T scored tokens of all rows, in order, each masked on its own."""

    rows: NDArray[np.int64]
    """Row of each token [T]."""
    gold: NDArray[np.int64]
    """Ids of the true tokens [T]."""
    log_probs: NDArray[np.float32]
    """Log probabilities of the true tokens [T], in nats."""
    ranks: NDArray[np.int64]
    """Number of tokens ranked above the true one [T]; 0 is a hit."""
    guesses: NDArray[np.int64]
    """Ids of the most likely tokens [T]."""
    guess_probs: NDArray[np.float32]
    """Probabilities of the most likely tokens [T]."""
    vocab: tuple[str, ...]
    """Tokens of the vocabulary."""


class FillMask(TaskKind[PlainRows, EncodedPassages, FilledBlanks]):
    """Predicts tokens that are masked one at a time (pseudo-log-likelihood; Salazar et al., arXiv 1910.14659).

    [UNK] is neither scored nor trained on, as in pretraining. Texts longer than `max_length` tokens are truncated.
    Scores of encoders with different vocabularies count different tokens and cannot be compared.
    """

    rows_class = PlainRows
    head = "mlm"

    def has_new_head(self, model: nn.Module) -> bool:
        """Return False: the head is that of pretraining; loading warns if a checkpoint lacks it."""
        return False

    def encode(self, rows: PlainRows, tokenizer: Tokenizer) -> EncodedPassages:
        sequences = encode_texts(rows.texts, None, tokenizer, max_length=self.config.max_length)
        is_special = np.zeros(tokenizer.vocab_size, dtype=bool)
        is_special[list(tokenizer.special_ids)] = True
        places = [
            _evenly(np.flatnonzero(~is_special[ids[:length]]), self.config.max_scored_tokens)
            for ids, length in zip(sequences.input_ids, sequences.lengths, strict=True)
        ]
        return EncodedPassages(
            sequences=sequences,
            keys=np.array([seed_for("passage", row) for row in rows.ids], dtype=np.uint64),
            rows=np.repeat(np.arange(len(places)), [len(each) for each in places]),
            positions=np.concatenate([*places, np.zeros(0, dtype=np.int64)]),
            policy=MaskingPolicy(
                mask_prob=self.config.mask_prob,
                replace_with_mask_prob=_REPLACE_WITH_MASK_PROB,
                replace_with_random_prob=_REPLACE_WITH_RANDOM_PROB,
                static=False,
                vocab_size=tokenizer.vocab_size,
                pad_id=tokenizer.pad_id,
                mask_id=tokenizer.mask_id,
                special_ids=tuple(sorted(tokenizer.special_ids)),
            ),
            vocab=tokenizer.vocab,
        )

    def training_batches(self, encoded: EncodedPassages, *, batch_size: int, seed: int) -> Batches:
        return _MaskedBatches(encoded, batch_size=batch_size, seed=seed)

    def training_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the logits at the masked positions, [B, P, V]."""
        names = ("input_ids", "token_type_ids", "attention_mask", "masked_positions")
        logits: Tensor = model(*(batch[name] for name in names)).mlm_logits
        return logits

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean cross-entropy over the targets of the batch; 0 without targets."""
        labels = batch["masked_labels"].flatten()
        total = F.cross_entropy(
            outputs.flatten(0, 1).float(),
            labels,
            ignore_index=IGNORED_LABEL,
            reduction="sum",
            label_smoothing=options.label_smoothing,
        )
        return total / (labels != IGNORED_LABEL).sum().clamp(min=1)

    def predict(self, model: nn.Module, encoded: EncodedPassages, machine: Machine) -> FilledBlanks:
        gold = encoded.gold
        count = len(gold)
        log_probs, guess_probs = (np.zeros(count, dtype=np.float32) for _ in range(2))
        ranks, guesses = (np.zeros(count, dtype=np.int64) for _ in range(2))
        with evaluating(model, machine) as forward:
            for chosen, batch in _scored_batches(encoded):
                on_device = [tensor.to(machine.device) for tensor in batch]
                # Embeddings may be padded: ids behind the tokenizer's stand for nothing.
                logits = forward(*on_device).mlm_logits[:, 0, : len(encoded.vocab)].float()
                truth = torch.from_numpy(gold[chosen]).to(machine.device)[:, None]
                of_truth = logits.gather(1, truth)
                # Ties rank the lower id first, as in `argmax`.
                before = torch.arange(logits.shape[1], device=logits.device) < truth
                ranks[chosen] = ((logits > of_truth) | ((logits == of_truth) & before)).sum(1).cpu().numpy()
                normaliser = logits.logsumexp(1)
                log_probs[chosen] = (of_truth[:, 0] - normaliser).cpu().numpy()
                best, best_ids = logits.max(1)
                guesses[chosen] = best_ids.cpu().numpy()
                guess_probs[chosen] = (best - normaliser).exp().cpu().numpy()
        return FilledBlanks(encoded.rows, gold, log_probs, ranks, guesses, guess_probs, encoded.vocab)

    def statistics(self, rows: PlainRows, predictions: FilledBlanks, calibration: Calibration) -> Statistics:
        """Return the sum of log probabilities, scored tokens, top-1 hits and top-k hits (`top_k`), [N, 4]."""
        columns = (
            predictions.log_probs.astype(np.float64),
            np.ones(len(predictions.rows)),
            predictions.ranks == 0,
            predictions.ranks < self.config.top_k,
        )
        totals = np.zeros((len(rows), len(STATISTICS)))
        for number, column in enumerate(columns):
            totals[:, number] = np.bincount(predictions.rows, weights=column, minlength=len(rows))
        return totals

    def scores(self, statistics: Statistics) -> dict[str, float]:
        return scores_of(statistics)

    def table(self, rows: PlainRows, predictions: FilledBlanks, calibration: Calibration) -> pa.Table:
        """See `TaskKind.table`: `gold` and `predicted` are tokens in order, `correct` is the share of top-1 hits."""
        statistics = self.statistics(rows, predictions, calibration)
        num_tokens = np.maximum(statistics[:, 1], 1)
        sureness = np.bincount(predictions.rows, weights=predictions.guess_probs, minlength=len(rows))
        bounds = np.searchsorted(predictions.rows, np.arange(len(rows) + 1))

        def shown(ids: NDArray[np.int64]) -> list[str]:
            return [" ".join(predictions.vocab[token] for token in ids[start:end]) for start, end in pairwise(bounds)]

        return pa.table(
            {
                "id": rows.ids,
                "text": rows.texts,
                "gold": shown(predictions.gold),
                "predicted": shown(predictions.guesses),
                "score": sureness / num_tokens,
                "correct": statistics[:, 2] / num_tokens,
                "tokens": statistics[:, 1].astype(np.int64),
                "log_prob": statistics[:, 0],
            }
        )

    def details(self, rows: PlainRows, predictions: FilledBlanks, calibration: Calibration) -> dict[str, Any]:
        """Return `pseudo_perplexity` (lower is better) and the number of scored tokens."""
        statistics = self.statistics(rows, predictions, calibration)
        return {"pseudo_perplexity": pseudo_perplexity(statistics), "scored_tokens": int(statistics[:, 1].sum())}

    def is_degenerate(self, rows: PlainRows, predictions: FilledBlanks, calibration: Calibration) -> bool:
        return len(predictions.guesses) > 1 and len(np.unique(predictions.guesses)) == 1


class _MaskedBatches(LengthSortedBatches):
    """Training batches whose masked tokens change each epoch, as a function of seed, epoch and row."""

    def __init__(self, encoded: EncodedPassages, *, batch_size: int, seed: int) -> None:
        super().__init__(encoded.sequences.lengths, self._masked, batch_size=batch_size, seed=seed)
        self._encoded = encoded

    def _masked(self, indices: NDArray[np.integer]) -> Batch:
        encoded = self._encoded
        batch = encoded.sequences.batch(indices)
        masked = mask_rows(
            batch["input_ids"].numpy(),
            encoded.keys[indices],
            seed=self.seed,
            epoch=self.epoch,
            policy=encoded.policy,
            num_columns=max_targets(batch["input_ids"].shape[1], encoded.policy.mask_prob, num_segments=1),
        )
        return {
            **batch,
            "input_ids": torch.from_numpy(masked.input_ids),
            "masked_positions": torch.from_numpy(masked.masked_positions),
            "masked_labels": torch.from_numpy(masked.masked_labels),
        }


def _scored_batches(encoded: EncodedPassages) -> Iterator[tuple[NDArray[np.integer], tuple[Tensor, ...]]]:
    """Yield batches of sequence copies with one masked token each: indices of the tokens, and the model inputs.

    Longest sequences come first; batches have about the same number of input tokens.
    """
    for chosen in scoring_indices(encoded.sequences.lengths[encoded.rows], max_tokens=_TOKENS_OF_A_BATCH):
        batch = encoded.sequences.batch(encoded.rows[chosen])
        positions = torch.from_numpy(encoded.positions[chosen])[:, None]
        masked = batch["input_ids"].scatter(1, positions, encoded.policy.mask_id)
        yield chosen, (masked, batch["token_type_ids"], batch["attention_mask"], positions)


def _evenly(places: NDArray[np.int64], most: int | None) -> NDArray[np.int64]:
    """Return at most `most` of the positions, evenly spaced; None returns all.

    >>> _evenly(np.arange(10), 4).tolist(), _evenly(np.arange(3), 4).tolist(), _evenly(np.arange(9), 1).tolist()
    ([1, 3, 6, 8], [0, 1, 2], [4])
    """
    if most is None or len(places) <= most:
        return places
    return places[((np.arange(most) + 0.5) * len(places) / most).astype(np.int64)]


task_kind = FillMask
