"""pretrain: the encoder with the heads of its objective, as a folder that transformers can load.

`bertline.pretraining.run` is the page to read: it builds tokenizer, model, probes, data and trainer, then trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.foundation.mappings import value_at
from bertline.foundation.work import Work
from bertline.stages.base import TRAINING_PACKAGES, Stage, picked
from bertline.tracking.tracked_runs import Attachment

if TYPE_CHECKING:
    from bertline.config import PipelineConfig
    from bertline.pretraining.objectives.base import Objective


class Pretrain(Stage):
    """The encoder, by masked language model and next sentence prediction; or a checkpoint as it is."""

    name = "pretrain"
    summary = "The pretrained encoder with the heads of its objective."
    sections = ("model", "objective", "optimizer", "schedule", "pretrain")
    data = sections
    inputs = ("artifacts/examples", "artifacts/tokenizer")
    output = "artifacts/pretrain"
    packages = TRAINING_PACKAGES
    is_long = True
    on_several_devices = True
    attachments = (
        # Mask predictions contain sentences of the configuration: the user's own text (see
        # tracking.log_text).
        Attachment(path="mask_predictions.jsonl", contains_text=True, while_working=True),
        Attachment(path="health.jsonl", contains_text=False, while_working=True),
        Attachment(path="profile/fit-top_operations.txt", contains_text=False, while_working=True),
    )

    def more_packages(self, config: Mapping[str, Any], task: str | None) -> Iterator[str]:
        if value_at(config, "pretrain.initial_embeddings") is not None:
            yield from ("scikit-learn", "scipy")

    def build(self, work: Work) -> dict[str, float]:
        if not work.config.pretrains:
            from bertline.pretraining.job import take_checkpoint

            return take_checkpoint(work.config.pretrain, work.output)
        from bertline.pretraining.run import run

        return run(work)

    def headline(self, metrics: Mapping[str, float], objective: Objective) -> dict[str, float]:
        baseline = next(term.figure for term in objective.terms if term.name == objective.judged_by) or ""
        score = f"val/{objective.metrics[0].name}"
        return picked(metrics, score=score, baseline=baseline, loss=f"val/{objective.judged_by}")

    def note(
        self, config: PipelineConfig, name: str, metrics: Mapping[str, float], output: Path
    ) -> tuple[str, list[str]]:
        blocks = super().note(config, name, metrics, output)[1]
        return ": ".join([name, *loss_of(config, metrics)]), blocks


def loss_of(config: PipelineConfig, metrics: Mapping[str, float]) -> list[str]:
    """Return `["MLM 3.64"]`; empty where nothing was pretrained or validated."""
    name = config.objective.judged_by
    loss = metrics.get(f"val/{name}")
    return [] if loss is None else [f"{name.removesuffix('_loss').upper()} {loss:.2f}"]
