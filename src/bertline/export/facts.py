"""What a model card says, gathered from manifests, scores and configuration; nothing is asked for that is not known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bertline.export.config import ExportConfig
from bertline.foundation.files import read_json
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.modeling.config import ModelConfig
from bertline.modeling.huggingface import read_config
from bertline.modeling.weight_files import count_parameters
from bertline.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFacts:
    """The facts of a line. Mappings are empty where a fact is not known, as after a run by hand."""

    export: ExportConfig
    model: ModelConfig
    vocab_size: int
    lowercase: bool
    num_parameters: int
    params: Mapping[str, Any]
    """The whole configuration."""
    commit: str | None
    corpus: Mapping[str, Any]
    """The corpus' manifest."""
    training: Mapping[str, Any]
    """Headline figures of pretraining."""
    precision: str | None
    """What `pretrain.precision` came to."""
    results: Mapping[str, Mapping[str, Any]]
    """result.json of each task's sweep."""

    pair_tasks: frozenset[str]
    """The tasks whose rows are pairs of texts."""

    @property
    def start_from(self) -> str | None:
        """The checkpoint that pretraining went on from."""
        return self.params.get("pretrain", {}).get("start_from")

    @property
    def hub_start(self) -> str | None:
        """The same where it is a name on the hub; a folder's name says nothing to a reader."""
        name = self.start_from
        if name is None or Path(name).exists():
            return None
        return name if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name) else None

    @property
    def encoder_max_length(self) -> int | None:
        """The longest sequence that positions were learned for; None where that is not known.

        A checkpoint that was continued brings all its positions with it.
        """
        phases = self.params.get("pretrain", {}).get("phases", [])
        if not phases or self.start_from is not None:
            return None
        return min(self.model.max_position_embeddings, max(phase["max_length"] for phase in phases))

    def task_max_length(self, task: str) -> int | None:
        """The sequence length that a classifier was fine-tuned and scored with."""
        return self.params.get("tasks", {}).get(task, {}).get("max_length")


def read_card_facts(
    config: ExportConfig, pretrain_folder: Path, sweep_folders: Mapping[str, Path], line_facts: Mapping[str, Any]
) -> CardFacts:
    """Gather the facts.

    Raises:
        ArtifactError: The encoder's folder or a sweep's result.json is missing.
    """
    model, vocab_size, _ = read_config(pretrain_folder)
    manifest = read_json(pretrain_folder / MANIFEST_NAME) if (pretrain_folder / MANIFEST_NAME).exists() else {}
    training = manifest.get("metrics") or line_facts.get("metrics", {}).get("pretrain", {})
    return CardFacts(
        export=config,
        model=model,
        vocab_size=vocab_size,
        lowercase=Tokenizer.load(pretrain_folder).lowercase,
        num_parameters=count_parameters(pretrain_folder),
        params=line_facts.get("params") or {},
        commit=line_facts.get("commit"),
        corpus=(line_facts.get("manifests") or {}).get("corpus", {}),
        training=training,
        precision=manifest.get("training", {}).get("resolved", {}).get("precision"),
        results={task: read_json(folder / "result.json") for task, folder in sweep_folders.items()},
        pair_tasks=frozenset(task for task, folder in sweep_folders.items() if _has_pairs(folder)),
    )


def _has_pairs(sweep_folder: Path) -> bool:
    path = sweep_folder / "predictions.parquet"
    if not path.exists():
        return False
    pairs = pq.read_table(path, columns=["text_pair"])["text_pair"]
    return pairs.null_count < len(pairs)
