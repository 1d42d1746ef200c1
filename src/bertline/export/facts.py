"""Content of model cards, from manifests, scores, configuration and the kinds of tasks. Unknown facts are omitted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.export.config import ExportConfig
from bertline.export.usage import Usage, is_pair
from bertline.finetuning.task_file import TASK_FILE, FinishedTask, read_task_file
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.modeling.config import ModelConfig
from bertline.modeling.huggingface import read_config
from bertline.modeling.weight_files import count_parameters
from bertline.pretraining.objectives import objective_from
from bertline.pretraining.objectives.base import Objective
from bertline.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFacts:
    """Facts of a pipeline. Mappings are empty if a fact is unknown, for example if stages were run by hand."""

    export: ExportConfig
    model: ModelConfig
    vocab_size: int
    tokenizer: str
    """What the encoder's tokenizer is: `cased WordPiece`, `lower-cased WordPiece`, or the name of another kind."""
    num_parameters: int
    params: Mapping[str, Any]
    """Complete configuration."""
    commit: str | None
    corpus: Mapping[str, Any]
    """Manifest of the corpus."""
    examples: Mapping[str, Any]
    """Manifest of the examples."""
    objective: Objective | None
    """Objective of pretraining; None if it is unknown or nothing was pretrained."""
    training: Mapping[str, Any]
    """Headline figures of pretraining."""
    taken_from: str | None
    """Checkpoint that was fine-tuned without further pretraining; None if an encoder was pretrained."""
    precision: str | None
    """Precision that `pretrain.precision` was resolved to."""
    results: Mapping[str, Mapping[str, Any]]
    """Content of result.json of each task's sweep."""

    tasks: Mapping[str, FinishedTask]
    """Content of task.json of each task's best model."""
    usages: Mapping[str, Usage]
    """Descriptions and code examples of each task's model."""
    families: Mapping[str, str]
    """Family of each task's encoder, as `model_type` in its config.json."""

    @property
    def start_from(self) -> str | None:
        """Checkpoint from which pretraining continued; None if it started from random weights."""
        return self.params.get("pretrain", {}).get("start_from")

    @property
    def hub_start(self) -> str | None:
        """`start_from` if it is a hub name, else None: the name of a local folder does not help a reader."""
        name = self.start_from
        return name if name is not None and _is_hub_name(name) else None

    def start_of(self, task: str) -> str | None:
        """Describe what a task's model was fine-tuned from; None if it is the pipeline's own encoder."""
        start = self.tasks[task].kind.config.start_from or self.taken_from
        if start is None:
            return None
        if start == "random":
            return "random weights"
        if _is_hub_name(start):
            return f"`{start}`"
        return self.taken_from if start == self.taken_from else "another checkpoint"

    @property
    def encoder_max_length(self) -> int | None:
        """Longest sequence in pretraining, for which positions were learned; None if unknown.

        It is None if pretraining continued from a checkpoint, whose positions are all learned.
        """
        phases = self.params.get("pretrain", {}).get("phases", [])
        if not phases or self.start_from is not None:
            return None
        return min(self.model.max_position_embeddings, max(phase["max_length"] for phase in phases))


def read_card_facts(
    config: ExportConfig, pretrain_folder: Path, sweep_folders: Mapping[str, Path], pipeline_facts: Mapping[str, Any]
) -> CardFacts:
    """Read the facts from the artifacts.

    Raises:
        ArtifactError: The encoder's folder or a sweep's result.json is missing.
    """
    tasks: dict[str, FinishedTask] = {}
    usages: dict[str, Usage] = {}
    for task, folder in sweep_folders.items():
        best = folder / "best"
        if (finished := read_task_file(best)) is None:
            raise ArtifactError(f"{best / TASK_FILE} is missing; {best} was written by an older bertline. Sweep again.")
        pair = is_pair(finished.kind.config, folder / "predictions.parquet")
        tasks[task], usages[task] = finished, finished.kind.usage(finished.calibration, pair=pair)
    model, vocab_size, _ = read_config(pretrain_folder)
    manifest = read_json(pretrain_folder / MANIFEST_NAME) if (pretrain_folder / MANIFEST_NAME).exists() else {}
    training = manifest.get("training", {})
    objective = training.get("objective")
    manifests = pipeline_facts.get("manifests") or {}
    return CardFacts(
        export=config,
        model=model,
        vocab_size=vocab_size,
        tokenizer=Tokenizer.load(pretrain_folder).description,
        num_parameters=count_parameters(pretrain_folder),
        params=pipeline_facts.get("params") or {},
        commit=pipeline_facts.get("commit"),
        corpus=manifests.get("corpus", {}),
        examples=manifests.get("examples", {}),
        objective=None if objective is None else objective_from(objective),
        training=manifest.get("metrics") or pipeline_facts.get("metrics", {}).get("pretrain", {}),
        taken_from=manifest.get("taken_from"),
        precision=training.get("resolved", {}).get("precision"),
        results={task: read_json(folder / "result.json") for task, folder in sweep_folders.items()},
        tasks=tasks,
        usages=usages,
        families={task: read_config(folder / "best")[0].family for task, folder in sweep_folders.items()},
    )


def _is_hub_name(name: str) -> bool:
    return not Path(name).exists() and re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?(@[\w.-]+)?", name) is not None
