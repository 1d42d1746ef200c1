"""Mask predictions: the most likely tokens for fixed blanks, recorded during training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertline.encoders.loading import LanguageModel
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import append_lines, read_json_lines, write_atomically
from bertline.pretraining.config import MaskPredictionsConfig
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import MASK
from bertline.training.devices import Machine
from bertline.training.probe import Probe, evaluating


@dataclass
class MaskPredictionProbe(Probe):
    """Appends frames to `mask_predictions.jsonl`: for each sentence, the most likely tokens at its first blank.

    `mask_predictions.txt` in the same folder has all frames as readable text and is rewritten with every frame.

    Raises:
        ConfigError: A sentence is too long for the model.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    config: MaskPredictionsConfig
    path: Path
    machine: Machine
    """Device, precision and ranks; only the first rank writes."""

    def __post_init__(self) -> None:
        self.every_steps = self.config.every_steps
        self._inputs = [self._encode(sentence) for sentence in self.config.sentences]

    def probe(self, step: int) -> dict[str, float]:
        """Append the frame of this step. The returned metrics are empty."""
        if self.machine.ranks.is_first and self._inputs:
            rows = [
                {"step": step, "sentence": sentence, "guesses": self._guesses(*inputs)}
                for sentence, inputs in zip(self.config.sentences, self._inputs, strict=True)
            ]
            append_lines(self.path, [json.dumps(row, ensure_ascii=False) for row in rows])
            self._write_text()
        return {}

    def keep_up_to(self, step: int) -> None:
        """Drop the frames after `step`."""
        if self.machine.ranks.is_first and self.path.exists():
            rows = [row for row in read_mask_predictions(self.path) if row["step"] <= step]
            write_atomically(self.path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
            self._write_text()

    def _write_text(self) -> None:
        write_atomically(self.path.with_suffix(".txt"), mask_predictions_text(read_mask_predictions(self.path)))

    def _guesses(self, input_ids: Tensor, position: int) -> list[list[Any]]:
        """Return the most likely tokens and their probabilities, most likely first."""
        ids = input_ids.to(self.machine.device)
        with evaluating(self.model, self.machine) as run:
            output = run(ids, torch.zeros_like(ids), torch.ones_like(ids), torch.full_like(ids[:, :1], position))
        # Embeddings may be padded: ids behind the tokenizer's stand for nothing.
        logits = output.mlm_logits[0, 0, : self.tokenizer.vocab_size]
        probabilities, guesses = logits.float().softmax(-1).topk(self.config.num_guesses)
        tokens = self.tokenizer.tokens(guesses.tolist())
        return [[token, round(prob, 6)] for token, prob in zip(tokens, probabilities.tolist(), strict=True)]

    def _encode(self, sentence: str) -> tuple[Tensor, int]:
        """Return `[CLS] sentence [SEP]` as token ids [1, S], and the position of the first blank."""
        tokenizer = self.tokenizer
        ids = tokenizer.single.sequence(tokenizer.encode(sentence.replace(MASK, tokenizer.mask_token)))
        longest = self.model.bert.config.max_position_embeddings
        if len(ids) > longest:
            raise ConfigError(
                f"pretrain.mask_predictions.sentences has one of {len(ids)} tokens, the model has positions for "
                f"{longest} (model.max_position_embeddings): {sentence!r}. Shorten it."
            )
        return torch.tensor([ids]), ids.index(tokenizer.mask_id)


def mask_predictions_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format mask predictions as readable text: each sentence with its guesses, newest first.

    Example:
        >>> guesses = [["list", 0.5], ["##s", 0.031]]
        >>> print(mask_predictions_text([{"step": 1000, "sentence": "A [MASK].", "guesses": guesses}]), end="")
        A [MASK].
             1,000  list 50 %  ##s 3 %
    """
    predictions: dict[str, list[str]] = {}
    for row in rows:
        guesses = "  ".join(f"{token} {100 * probability:.0f} %" for token, probability in row["guesses"])
        predictions.setdefault(row["sentence"], []).append(f"{row['step']:>10,}  {guesses}\n")
    return "\n".join(f"{sentence}\n{''.join(reversed(frames))}" for sentence, frames in predictions.items())


def read_mask_predictions(path: Path) -> list[dict[str, Any]]:
    """Read the rows of mask predictions in file order. A torn last line (the writer was killed) is skipped."""
    return read_json_lines(path)
