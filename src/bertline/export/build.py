"""The stage `export`: self-contained Hugging Face folders, checked against transformers before they are written."""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bertline.encoders.loading import load_model, save_model
from bertline.export.card import CardFacts, encoder_card, linear_card, task_card
from bertline.export.config import ExportConfig
from bertline.export.onnx import checked_sequences, export_onnx
from bertline.export.views import Architecture, architecture_in, verify_model
from bertline.finetuning.task_file import write_task_file
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import folder_written_atomically, sha256_of_file, size_of_path, write_atomically
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.foundation.progress import say
from bertline.modeling.checkpoint import WEIGHTS_NAME
from bertline.modeling.families import GENERATOR
from bertline.modeling.text_vectors import CLASSIFIER, VectorSettings, write_sentence_transformer
from bertline.tokenization.storage import add_tokenizer_json, copy_tokenizer

ENCODER = "encoder"
# Graphs of tasks have no output for pairs of sentences.
_WITHOUT_PAIRS: dict[Architecture, Architecture] = {"BertForPreTraining": "BertForMaskedLM"}


def build_export(
    config: ExportConfig,
    pretrain_folder: Path,
    sweep_folders: Mapping[str, Path],
    pipeline_facts: Mapping[str, Any],
    out: Path,
) -> dict[str, float | int]:
    """Write `out/encoder` and `out/TASK`: Hugging Face folders with tokenizer, ONNX files and model card, verified.

    There is no `out/encoder` if a checkpoint was fine-tuned without further pretraining: it is published already. Where
    a baseline has won, it is `out/TASK`, and the encoder is in `out/TASK-encoder`.

    Args:
        pretrain_folder: Folder of the encoder with its pretraining heads.
        sweep_folders: Folder of the sweep artifact of each task, with the best model in `best/`.
        pipeline_facts: `params`, `commit`, and by stage `metrics` and `manifests`; unknown ones may be missing.
        out: Folder to write; replaced only if all checks pass.

    Returns:
        For each folder the largest difference from transformers' logits and the size in bytes and, for each ONNX file
        that was written, the largest difference of the fp32 file and the agreement of the int8 file.

    Raises:
        ConfigError: A task is named like the encoder's folder.
        ArtifactError: An artifact is missing, or outputs of transformers or ONNX differ; `out` is unchanged.
    """
    if ENCODER in sweep_folders:
        raise ConfigError(f"a task is named {ENCODER!r}, which is the folder of the encoder itself. Rename the task.")
    facts = CardFacts(config, pretrain_folder, sweep_folders, pipeline_facts)
    exported: dict[str, dict[str, Any]] = {}
    with folder_written_atomically(out) as folder:
        if facts.taken_from is None:
            exported[ENCODER] = _export_encoder(facts, pretrain_folder, sweep_folders, folder / ENCODER)
        for task, sweep_folder in sweep_folders.items():
            name = task if facts.baseline(task) is None else f"{task}-{ENCODER}"
            exported[name] = _export_task(facts, task, sweep_folder, folder / name)
            if name != task:
                shutil.copytree(sweep_folder / "winner", folder / task)
                write_atomically(folder / task / "README.md", linear_card(facts, task))
                exported[task] = _entry(folder / task)
        content = {
            "models": exported,
            "logits_tolerance": config.logits_tolerance,
            "onnx_tolerance": config.onnx_tolerance,
            "versions": versions_of("safetensors", "tokenizers", "torch", "transformers", "onnx", "onnxruntime"),
        }
        write_manifest(folder, kind="export", format_version=2, content=content)
    return {f"{name}/{key}": value for name, model in exported.items() for key, value in _headline(model).items()}


def _export_encoder(facts: CardFacts, source: Path, sweep_folders: Mapping[str, Path], target: Path) -> dict[str, Any]:
    is_detector = architecture_in(source) == "ElectraForPreTraining"
    save_model(load_model(source, "detector" if is_detector else "mlm"), target)
    max_length = facts.encoder_max_length or facts.encoder.config.max_position_embeddings
    copy_tokenizer(source, target, max_length=max_length)
    if is_detector:
        generator = target / GENERATOR
        save_model(load_model(source / GENERATOR, "mlm"), generator)
        copy_tokenizer(source, generator, max_length=max_length)
        verify_model(generator, labels=None, tolerance=facts.export.logits_tolerance)
    # Without these files, other servers take the first position (TEI) or guess; `embed` takes the mean.
    vectors = VectorSettings(pooling="mean", similarity="cosine", prompts={"query": "", "document": ""})
    write_sentence_transformer(target, vectors, max_length=max_length)
    # The encoder has no labelled rows; rows of a task are realistic texts to check it with.
    predictions = [folder / "predictions.parquet" for folder in sweep_folders.values()]
    rows = next((path for path in predictions if path.exists()), source / "predictions.parquet")
    return _checked(facts, target, rows, max_length, partial(encoder_card, facts))


def _export_task(facts: CardFacts, task: str, sweep_folder: Path, target: Path) -> dict[str, Any]:
    finished, source = facts.tasks[task], sweep_folder / "best"
    kind = finished.kind
    kind.save_model(kind.load_model(source), target)
    max_length = kind.config.max_length
    copy_tokenizer(source, target, max_length=max_length)
    write_task_file(target, kind, finished.calibration, finished.label_sets)
    if (vectors := facts.usages[task].vectors) is not None:
        write_sentence_transformer(target, vectors, max_length=max_length)
    card = partial(task_card, facts, task)
    return _checked(facts, target, sweep_folder / "predictions.parquet", max_length, card, kind)


def _checked(
    facts: CardFacts, folder: Path, rows: Path, max_length: int, card: Callable[..., str], task: Any = None
) -> dict[str, Any]:
    """Check a folder, make its ONNX files and its card, and return its entry in the manifest."""
    add_tokenizer_json(folder)
    config, architecture = facts.export, architecture_in(folder)
    labels = task.labels if task is not None and task.labels and architecture.endswith("Classification") else None
    difference, onnx = verify_model(folder, labels=labels, tolerance=config.logits_tolerance), None
    if config.onnx:
        say(f"export: {folder.name}: ONNX")
        graph: Architecture = "BertModel" if task is None else _WITHOUT_PAIRS.get(architecture, architecture)
        if (folder / CLASSIFIER).is_dir():  # config.json names the encoder alone, as transformers loads it
            graph = "BertForSequenceClassification"
        settings = None if task is None else task.config
        sequences = checked_sequences(folder, graph, rows, max_length=max_length, task=settings)
        onnx = export_onnx(config, folder, graph, sequences, max_length=max_length)
    write_atomically(folder / "README.md", card(onnx, size_of_path(folder / WEIGHTS_NAME)))
    return {"max_logits_difference": difference, "onnx": onnx, **_entry(folder)}


def _entry(folder: Path) -> dict[str, Any]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "bytes": size_of_path(folder),
        "sha256": {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in files},
    }


def _headline(model: Mapping[str, Any]) -> dict[str, float | int]:
    figures = {name: model[name] for name in ("max_logits_difference", "bytes") if name in model}
    files: Mapping[str, Any] = (model.get("onnx") or {}).get("files", {})
    if "onnx" in files:
        figures["onnx_max_difference"] = files["onnx"]["max_difference"]
    agreements = {name: file["agreement"] for name, file in files.items() if name != "onnx"}
    return figures | {f"{name.removeprefix('onnx_')}_agreement": value for name, value in agreements.items()}
