"""The mask predictions: the model's predictions for a few fixed blanks during training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertline.foundation.errors import ConfigError
from bertline.foundation.files import append_lines, write_atomically
from bertline.modeling.bert import MaskedLanguageModel
from bertline.pretraining.config import MaskPredictionsConfig
from bertline.pretraining.objectives.base import Objective
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine
from bertline.training.evaluating import evaluating


class MaskPredictionProbe:
    """Appends frames to `mask_predictions.jsonl`: for each sentence, the most likely tokens at its first blank.

    `mask_predictions.txt` in the same folder has all frames as readable text and is rewritten
    with every frame.

    Args:
        model: Model being trained.
        objective: Its objective, which knows the guesses in its output.
        tokenizer: Tokenizer of the pipeline.
        config: Sentences and number of guesses.
        path: Path of the JSON Lines file.
        machine: Device, precision and ranks; only the first rank writes.
    """

    def __init__(
        self,
        model: MaskedLanguageModel,
        objective: Objective,
        tokenizer: Tokenizer,
        config: MaskPredictionsConfig,
        path: Path,
        *,
        machine: Machine,
    ) -> None:
        self.every_steps = config.every_steps
        self._model = model
        self._objective = objective
        self._tokenizer = tokenizer
        self._config = config
        self._path = path
        self._machine = machine
        self._inputs = [self._encode(sentence) for sentence in config.sentences]

    def probe(self, step: int) -> dict[str, float]:
        """Append the frame of this step. The returned metrics are empty."""
        if self._machine.ranks.is_first and self._inputs:
            rows = [
                {"step": step, "sentence": sentence, "guesses": self._guesses(*inputs)}
                for sentence, inputs in zip(self._config.sentences, self._inputs, strict=True)
            ]
            append_lines(self._path, [json.dumps(row, ensure_ascii=False) for row in rows])
            self._write_text()
        return {}

    def keep_up_to(self, step: int) -> None:
        """Drop the frames after `step`."""
        if self._machine.ranks.is_first and self._path.exists():
            rows = [row for row in read_mask_predictions(self._path) if row["step"] <= step]
            write_atomically(self._path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
            self._write_text()

    def _write_text(self) -> None:
        write_atomically(self._path.with_suffix(".txt"), mask_predictions_text(read_mask_predictions(self._path)))

    def _guesses(self, input_ids: Tensor, position: int) -> list[list[Any]]:
        """Return the most likely tokens and their probabilities, most likely first."""
        on_device = input_ids.to(self._machine.device)
        with evaluating(self._model, self._machine) as run:
            output = run(
                on_device,
                torch.zeros_like(on_device),
                torch.ones_like(on_device),
                torch.full_like(on_device[:, :1], position),
            )
        logits = self._objective.guesses(output)[0, 0]
        probabilities, ids = logits.float().softmax(-1).topk(self._config.num_guesses)
        tokens = self._tokenizer.tokens(ids.tolist())
        return [
            [token, round(probability, 6)] for token, probability in zip(tokens, probabilities.tolist(), strict=True)
        ]

    def _encode(self, sentence: str) -> tuple[Tensor, int]:
        """Return `[CLS] sentence [SEP]` as token ids [1, S], and the position of the first blank."""
        tokenizer = self._tokenizer
        ids = [tokenizer.cls_id, *tokenizer.encode(sentence), tokenizer.sep_id]
        longest = self._model.bert.config.max_position_embeddings
        if len(ids) > longest:
            raise ConfigError(
                f"pretrain.mask_predictions.sentences has one of {len(ids)} tokens, the model has positions for "
                f"{longest} (model.max_position_embeddings): {sentence!r}. Shorten it."
            )
        return torch.tensor([ids]), ids.index(tokenizer.mask_id)


def mask_predictions_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format a mask predictions as readable text: each sentence with its guesses, newest first.

    Example:
        >>> guesses = [["list", 0.5], ["##s", 0.031]]
        >>> print(mask_predictions_text([{"step": 1000, "sentence": "A [MASK].", "guesses": guesses}]), end="")
        A [MASK].
             1,000  list 50 %  ##s 3 %
    """
    strips: dict[str, list[str]] = {}
    for row in rows:
        guesses = "  ".join(f"{token} {100 * probability:.0f} %" for token, probability in row["guesses"])
        strips.setdefault(row["sentence"], []).append(f"{row['step']:>10,}  {guesses}\n")
    return "\n".join(f"{sentence}\n{''.join(reversed(frames))}" for sentence, frames in strips.items())


def read_mask_predictions(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a mask predictions in file order. A torn last line (the writer was killed) is skipped."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
