"""Masked-token prediction with the pretraining head, trained as in pretraining (paper, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertline.demo.docstrings import ModuleDocs
from bertline.finetuning.encoding import LengthSortedBatches, Sequences, encode_texts, scoring_indices, tensors
from bertline.foundation.labels import IGNORED_LABEL
from bertline.foundation.seeds import seed_for
from bertline.kinds.base import Batch, Batches, Calibration, LossOptions, Statistics, TaskKind, require_texts, row_ids
from bertline.tasks.bad_rows import BadRow, BadRows, text_in
from bertline.tasks.config import BaseTaskConfig
from bertline.tasks.decoded_files import ENCODING_OPTION
from bertline.tasks.metrics.fill_mask import STATISTICS, pseudo_perplexity, scores_of
from bertline.tasks.source_config import PlainTextSourceConfig
from bertline.tasks.source_files import read_splits, same_text
from bertline.tasks.stored_rows import BuiltTask, PlainRows
from bertline.tasks.table_source import Record, TableLayout, parsed_records, read_lines, value_in

if TYPE_CHECKING:
    from bertline.examples.masking import MaskingPolicy
    from bertline.kinds.base import Baseline, BaselineInputs, Machine, TaskPredictor, Tensor, Tokenizer, Usage, nn


# Paper, section 3.1: 80 % of the targets are replaced by [MASK], 10 % by a random token, 10 % stay unchanged.
_REPLACE_WITH_MASK_PROB, _REPLACE_WITH_RANDOM_PROB = 0.8, 0.1
# Number of input tokens in a scoring batch: each scored token takes one copy of its whole sequence.
_TOKENS_OF_A_BATCH = 8192
_TEXT_FILE = ".txt"
_MOST_SHOWN = 8
"""Number of wrong blanks that an error shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FillMaskTaskConfig(BaseTaskConfig):
    """Masked language modelling on the user's text: fine-tunes and scores the pretraining head."""

    kind: Literal["fill_mask"]
    source: PlainTextSourceConfig
    top_k: int
    """Number of guesses among which the token must be, for `topk_accuracy`."""
    mask_prob: float
    """Fraction of the tokens masked in training. Scoring masks each token once, one at a time."""
    max_scored_tokens: int | None
    """Maximum number of tokens scored per row, with one forward pass each; None scores all."""
    metric: Literal["top1_accuracy", "topk_accuracy", "negative_log_perplexity"]
    """Metric on dev that selects trials; higher is better."""

    def __post_init__(self) -> None:
        # Not super(): `slots=True` creates a new class, and zero-argument super() refers to the original one.
        BaseTaskConfig.__post_init__(self)
        for name in ("top_k", "max_scored_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob must be above 0 and below 1, found {self.mask_prob}")


class Passage(NamedTuple):
    """A passage of text."""

    id: str
    """File and line (Parquet: row, from 1)."""
    text: str


class TextScore(NamedTuple):
    """Pseudo-likelihood scores of a text: each token is predicted from all others."""

    pseudo_perplexity: float
    """Pseudo-perplexity of the scored tokens (arXiv 1910.14659); lower is better, nan if there are none."""
    log_prob: float
    """Sum of the log probabilities of the scored tokens, in nats."""
    num_tokens: int
    accuracy: float
    """Top-1 accuracy over the scored tokens; nan if there are none."""


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

    config_class = FillMaskTaskConfig
    rows_class = PlainRows
    head = "mlm"
    answers = (TextScore,)
    output_schema = pa.schema(
        {"predicted": pa.list_(pa.string()), "probability": pa.list_(pa.float64()), "pseudo_perplexity": pa.float64()}
    )
    asks = "Fill-mask: which token belongs in a blank? The encoder is scored as it was pretrained."
    measures = "the share of blanks filled right"

    @staticmethod
    def build(name: str, config: FillMaskTaskConfig, modules: Iterable[ModuleDocs] = ()) -> BuiltTask:
        splits, dropped = read_splits(config, read_passages, same=lambda row: same_text([row.text]), name="passage")
        return BuiltTask(splits={split: PlainRows.of(rows) for split, rows in splits.items()}, dropped=dropped)

    # ---- the model

    def has_new_head(self, model: nn.Module) -> bool:
        """Return False: the head is that of pretraining; loading warns if a checkpoint lacks it."""
        return False

    def encode(self, rows: PlainRows, tokenizer: Tokenizer) -> EncodedPassages:
        from bertline.examples.masking import MaskingPolicy

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
        """Return batches whose masked tokens change each epoch, as a function of seed, epoch and row."""
        from bertline.examples.masking import mask_rows, max_targets

        def masked(indices: NDArray[np.integer]) -> Batch:
            batch = encoded.sequences.batch(indices)
            of_rows = mask_rows(
                batch["input_ids"].numpy(),
                encoded.keys[indices],
                seed=seed,
                epoch=batches.epoch,
                policy=encoded.policy,
                num_columns=max_targets(batch["input_ids"].shape[1], encoded.policy.mask_prob, num_segments=1),
            )
            changed = {name: getattr(of_rows, name) for name in ("input_ids", "masked_positions", "masked_labels")}
            return {**batch, **tensors(**changed)}

        batches = LengthSortedBatches(encoded.sequences.lengths, masked, batch_size=batch_size, seed=seed)
        return batches

    def training_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the logits at the masked positions, [B, P, V]."""
        names = ("input_ids", "token_type_ids", "attention_mask", "masked_positions")
        logits: Tensor = model(*(batch[name] for name in names)).mlm_logits
        return logits

    def hard_loss(self, model: nn.Module, outputs: Tensor, batch: Batch, options: LossOptions) -> Tensor:
        """Compute the mean cross-entropy over the targets of the batch; 0 without targets."""
        import torch.nn.functional as F

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
        import torch

        from bertline.training.devices import evaluating

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

    # ---- baselines, answers to users, report

    def baselines(self, inputs: BaselineInputs) -> list[Baseline]:
        """Return the baseline that predicts the most frequent tokens of train for every blank, of equals the lowest.

        A token's probability is its share in train, with add-one smoothing over all tokens that are not special, so
        that none has probability 0. Tokens are scored, so without the encoder's tokenizer there is no baseline.
        """
        tokenizer = inputs.tokenizer
        if tokenizer is None:
            return []
        encoded = self.encode(inputs.train, tokenizer)
        sequences, special = encoded.sequences, list(encoded.policy.special_ids)
        real = np.arange(sequences.input_ids.shape[1]) < sequences.lengths[:, None]
        counts = np.bincount(sequences.input_ids[real], minlength=encoded.policy.vocab_size)
        counts[special] = 0
        ordinary = np.ones(len(counts), dtype=bool)
        ordinary[special] = False
        log_probs = np.log((counts + 1) / (counts[ordinary].sum() + ordinary.sum()))
        # Special tokens come last: they are never the target.
        order = np.lexsort((np.arange(len(counts)), -counts, ~ordinary))
        ranks = np.empty(len(counts), dtype=np.int64)
        ranks[order] = np.arange(len(counts))

        def predicted(rows: PlainRows) -> FilledBlanks:
            blanks = self.encode(rows, tokenizer)
            gold = blanks.gold
            return FilledBlanks(
                rows=blanks.rows,
                gold=gold,
                log_probs=log_probs[gold].astype(np.float32),
                ranks=ranks[gold],
                guesses=np.full(len(gold), order[0]),
                guess_probs=np.full(len(gold), np.exp(log_probs[order[0]]), dtype=np.float32),
                vocab=blanks.vocab,
            )

        return [inputs.baseline("unigram", "most frequent tokens", predicted)]

    def serve(self, predictor: TaskPredictor, texts: Sequence[str]) -> list[TextScore]:
        """Score each text by masking its tokens in turn. `[MASK]` in a text counts as a word; `fill_mask` fills it."""
        read = require_texts(texts, "texts")
        if not read:
            return []
        rows = PlainRows(row_ids(len(read)), read)
        table = self.table(rows, predictor.predictions(rows), predictor.calibration)
        scores = []
        for tokens, log_prob, correct in zip(
            *(table[name].to_pylist() for name in ("tokens", "log_prob", "correct")), strict=True
        ):
            perplexity = math.exp(-log_prob / tokens) if tokens else math.nan
            scores.append(TextScore(perplexity, log_prob, tokens, correct if tokens else math.nan))
        return scores

    def file_outputs(self, predictor: TaskPredictor, *inputs: list[Any]) -> list[dict[str, Any]]:
        """Fill each blank with the most likely token; compute the pseudo-perplexity of texts without blanks."""
        from bertline.inference.model import MASK, fill_blanks

        (texts,) = inputs
        scores = iter(self.serve(predictor, [text for text in texts if MASK not in text]))
        rows = []
        for text in texts:
            guesses, perplexity = [], None
            if MASK in text:
                blanks = fill_blanks(predictor.model, predictor.tokenizer, text, 1, self.config.max_length)
                guesses = [best[0] for best in blanks]
            else:
                perplexity = next(scores).pseudo_perplexity
            rows.append(
                {
                    "predicted": [guess.token for guess in guesses],
                    "probability": [guess.probability for guess in guesses],
                    "pseudo_perplexity": None if perplexity is None or math.isnan(perplexity) else perplexity,
                }
            )
        return rows

    @staticmethod
    def error_block(error: dict[str, Any]) -> str:
        from bertline.evaluation.html import inputs_of, quote, sureness

        pairs = zip(str(error["gold"]).split(), str(error["predicted"]).split(), strict=False)
        wrong = [f"{guess} for {token}" for token, guess in pairs if guess != token]
        more = f" and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
        return quote(inputs_of(error), f"filled in {', '.join(wrong[:_MOST_SHOWN])}{more} {sureness(error)}")

    def usage(self, calibration: Calibration, *, pair: bool) -> Usage:
        from bertline.export.usage import Usage

        return Usage(
            what="Fills blanks in texts of its domain.",
            tag="fill-mask",
            pipeline=True,
            snippets=(
                "from transformers import pipeline\n\n"
                'pipeline("fill-mask", model="NAME")("The word [MASK] is missing.")',
                'import bertline\n\nbertline.load("NAME").fill_mask("The word [MASK] is missing.", top_k=5)',
            ),
            limits=(),
        )


def _scored_batches(encoded: EncodedPassages) -> Iterator[tuple[NDArray[np.integer], tuple[Tensor, ...]]]:
    """Yield batches of sequence copies with one masked token each: indices of the tokens, and the model inputs.

    Longest sequences come first; batches have about the same number of input tokens.
    """
    import torch

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


def read_passages(path: Path, config: PlainTextSourceConfig, bad_rows: BadRows) -> list[Passage]:
    """Read passages from a `.txt` file, one per line, or from CSV, TSV, JSONL or Parquet (`.gz` too, except Parquet).

    Blank lines of a text file are skipped. An empty text in a table is an invalid row.
    """
    if path.name.removesuffix(".gz").lower().endswith(_TEXT_FILE):
        lines = read_lines(path, config.encoding, ENCODING_OPTION)
        return [Passage(line.where, line.values[0].strip()) for line in lines if line.values[0].strip()]
    layout = TableLayout("auto", header=True, quoting=True, encoding=config.encoding, options=ENCODING_OPTION)
    return parsed_records(
        path, layout, bad_rows, lambda record: Passage(record.where, _text(record, config.text_column))
    )


def _text(record: Record, column: str) -> str:
    value = value_in(record, column, "source.text_column")
    text = "" if value is None else text_in(value)
    if text is None:
        raise BadRow("wrong_type", f"{column!r} is {value!r}, which is no text")
    if not text.strip():
        raise BadRow("empty_text", f"the text in column {column!r} is empty")
    return text.strip()
