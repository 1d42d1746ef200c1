"""The export stage: folders that stand on their own, each held to transformers before anyone sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertline.export.card import classifier_card, encoder_card
from bertline.export.config import ExportConfig
from bertline.export.facts import CardFacts, read_card_facts
from bertline.export.verification import verify_classifier, verify_encoder
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import (
    folder_written_atomically,
    sha256_of_file,
    size_of_path,
    write_atomically,
)
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.modeling.huggingface import load_classifier, load_pretraining_model, read_labels, save_model
from bertline.tokenization.storage import copy_tokenizer

KIND = "export"
FORMAT_VERSION = 1
ENCODER = "encoder"


def build_export(
    config: ExportConfig,
    *,
    pretrain_folder: Path,
    sweep_folders: Mapping[str, Path],
    line_facts: Mapping[str, Any],
    out: Path,
) -> dict[str, float | int]:
    """Write `out/encoder` and `out/TASK`: Hugging Face folders with tokenizer and model card, verified.

    Args:
        config: Names, licence, tolerance.
        pretrain_folder: The encoder with its pretraining heads.
        sweep_folders: The sweep's artifact of each task, with the winner in `best/`.
        line_facts: `params`, `commit`, `metrics` by stage and `manifests` by stage, each where it is known.
        out: Is replaced when everything has passed.

    Returns:
        For each folder its largest difference from transformers' logits and its size.

    Raises:
        ConfigError: A task has the encoder's name.
        ArtifactError: An artifact is missing, or transformers computes something else; `out` stays as it was.
    """
    if ENCODER in sweep_folders:
        raise ConfigError(f"a task is named {ENCODER!r}, which is the folder of the encoder itself. Rename the task.")
    facts = read_card_facts(config, pretrain_folder, sweep_folders, line_facts)
    exported: dict[str, dict[str, Any]] = {}
    with folder_written_atomically(out) as folder:
        _write_encoder(facts, pretrain_folder, folder / ENCODER)
        exported[ENCODER] = _verified(folder / ENCODER, verify_encoder, config)
        for task, sweep_folder in sweep_folders.items():
            _write_classifier(facts, task, sweep_folder / "best", folder / task)
            exported[task] = _verified(folder / task, verify_classifier, config)
        content = {
            "models": exported,
            "logits_tolerance": config.logits_tolerance,
            "versions": versions_of("safetensors", "tokenizers", "torch", "transformers"),
        }
        write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    return {
        f"{name}/{key}": model[key] for name, model in exported.items() for key in ("max_logits_difference", "bytes")
    }


def _write_encoder(facts: CardFacts, source: Path, target: Path) -> None:
    save_model(load_pretraining_model(source), target)
    copy_tokenizer(source, target, max_length=facts.encoder_max_length)
    write_atomically(target / "README.md", encoder_card(facts))


def _write_classifier(facts: CardFacts, task: str, source: Path, target: Path) -> None:
    labels = read_labels(source)
    save_model(load_classifier(source), target, id2label=dict(enumerate(labels)))
    copy_tokenizer(source, target, max_length=facts.task_max_length(task))
    write_atomically(target / "README.md", classifier_card(facts, task, labels))


def _verified(folder: Path, verify: Callable[..., float], config: ExportConfig) -> dict[str, Any]:
    return {
        "max_logits_difference": verify(folder, tolerance=config.logits_tolerance),
        "bytes": size_of_path(folder),
        "sha256": {path.name: sha256_of_file(path) for path in sorted(folder.iterdir())},
    }
