"""One pretraining run: its configuration, inputs and files, its identity, and its result."""

import dataclasses
import hashlib
import json
import shutil
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bertline.encoders.loading import LanguageModel, load_encoder, load_model, save_model
from bertline.examples.store import read_examples_manifest
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import folder_written_atomically, read_json_lines, sha256_of_file
from bertline.foundation.manifests import MANIFEST_NAME, versions_of, write_manifest
from bertline.foundation.mappings import leaves
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.progress import say
from bertline.foundation.work import Work
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.config import ModelConfig
from bertline.modeling.families import GENERATOR
from bertline.modeling.huggingface import keep_pooler
from bertline.pretraining.config import PretrainConfig, checkpoint_title
from bertline.pretraining.objectives import ObjectiveConfig
from bertline.pretraining.plan import Plan
from bertline.tokenization.storage import copy_tokenizer, save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import resolve_folder
from bertline.training.config import Precision, RuntimeConfig, ScheduleConfig
from bertline.training.optimizers import OptimizerConfig
from bertline.training.progress import Seconds


def _in_run_folder(name: str) -> Any:
    return property(lambda job: job.run_folder / name)


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainJob:
    """One pretraining run: its configuration, inputs and working folder."""

    model: ModelConfig
    objective: ObjectiveConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    pretrain: PretrainConfig
    runtime: RuntimeConfig
    examples_folder: Path
    tokenizer_folder: Path
    run_folder: Path
    """Folder of the checkpoints, the metrics and, at the end, the result."""
    start_from_folder: Path | None = None
    """Folder of a BERT checkpoint with the same vocabulary; None for random weights."""

    @classmethod
    def of(cls, work: Work) -> Self:
        """Return the job of a run folder; DataError if `pretrain.start_from` is neither a folder nor a hub name."""
        config, pretrain = work.config, work.config.pretrain
        return cls(
            model=config.model,
            objective=config.objective,
            optimizer=config.optimizer,
            schedule=config.schedule,
            pretrain=pretrain,
            runtime=config.runtime,
            examples_folder=work.inputs["examples"],
            tokenizer_folder=work.inputs["tokenizer"],
            run_folder=work.folder,
            start_from_folder=resolve_folder(pretrain.start_from, pretrain.start_from_revision)
            if pretrain.start_from
            else None,
        )

    checkpoints_folder = _in_run_folder("checkpoints")
    metrics_path = _in_run_folder("metrics.jsonl")
    mask_predictions_path = _in_run_folder("mask_predictions.jsonl")
    """The guesses for the fixed blanks."""
    health_path = _in_run_folder("health.jsonl")
    """The alarms."""
    latest_folder = _in_run_folder("latest")
    """Model folder of the newest weights, to inspect a run in progress."""
    result_folder = _in_run_folder("result")

    @property
    def logs(self) -> tuple[Path, ...]:
        """Files that the run appends to while it trains; the result has copies of them."""
        return (self.metrics_path, self.mask_predictions_path, self.health_path)


# Keys that do not affect the weights of the last step, which are the result: probes use no generator of training, and
# checkpoints are copies. New values apply from the resumed step on.
_FREE_KEYS = (
    "pretrain.validate_every_steps",
    "pretrain.validation_sequences",
    "pretrain.checkpoint_every_steps",
    "pretrain.keep_checkpoints",
    "pretrain.mask_predictions",
    "pretrain.head_probe",
    "pretrain.health",
)


def identity_of(job: PretrainJob, precision: Precision) -> dict[str, Any]:
    """Return everything that the weights depend on as plain data: configuration, inputs and resolved precision."""
    tokens = "\n".join(Tokenizer.load(job.tokenizer_folder).vocab)
    sections = ("model", "objective", "optimizer", "schedule", "pretrain")
    identity = {
        **{name: dataclasses.asdict(getattr(job, name)) for name in sections},
        "examples": {"manifest": sha256_of_file(job.examples_folder / MANIFEST_NAME)},
        "tokenizer": {"tokens": hashlib.sha256(tokens.encode()).hexdigest()},
        "resolved": {"precision": precision},
    }
    return json.loads(json.dumps(identity))


def require_same(trained: Mapping[str, Any], expected: Mapping[str, Any], *, where: str) -> None:
    """Refuse to resume from a checkpoint of a different training; keys that do not affect the weights may differ.

    `pretrain.precision=auto` is resolved otherwise on a machine that computes in another precision.
    """
    before, now = (dict(leaves(identity)) for identity in (trained, expected))
    differences = [
        f"  - {key} was {before.get(key)!r}, is now {now.get(key)!r}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key) and not any(f"{key}.".startswith(f"{one}.") for one in _FREE_KEYS)
    ]
    if differences:
        rule = "A run is resumed only as it was started; change it back, or give another run folder."
        raise ConfigError("\n".join([f"{where} was trained with another configuration:", *differences, rule]))


def write_result(
    job: PretrainJob, model: LanguageModel, metrics: dict[str, float], *, identity: dict[str, Any]
) -> None:
    """Write the result folder: the model, the records and a manifest with the headline figures `metrics`."""
    with folder_written_atomically(job.result_folder) as folder:
        write_model(job, model, folder)
        for path in job.logs:
            if path.exists():
                shutil.copyfile(path, folder / path.name)
        versions = versions_of("torch", "pytorch-lightning")
        content = {"metrics": metrics, "training": identity, "versions": versions}
        write_manifest(folder, kind="pretrain", format_version=1, content=content)


def write_model(job: PretrainJob, model: LanguageModel, folder: Path) -> None:
    """Write model and tokenizer to a folder, as transformers loads them."""
    save_model(model, folder)
    if job.start_from_folder is not None:
        keep_pooler(Checkpoint.open(job.start_from_folder), folder)
    # An initial checkpoint may have seen longer sequences than this run.
    longest = None if job.start_from_folder else max(phase.max_length for phase in job.pretrain.phases)
    for each in (folder, *folder.glob(GENERATOR)):
        copy_tokenizer(job.tokenizer_folder, each, max_length=longest)


def headline_figures(job: PretrainJob, model: LanguageModel, seconds: Seconds, num_tokens: float) -> dict[str, float]:
    """Return the last value of each headline metric, medians of speed over the rows, and totals of the run."""
    rows, shown = [row.metrics for row in read_metrics(job.metrics_path)], ("train/loss", "val/", "probe/")
    last = {key: value for row in rows for key, value in row.items() if key.startswith(shown)}
    length = str(Plan.of(job.pretrain).place(job.pretrain.num_steps - 1).max_length)
    return {
        **last,
        "unigram_entropy": read_examples_manifest(job.examples_folder)["lengths"][length]["unigram_entropy"],
        **{key: statistics.median(row[key] for row in rows if key in row) for key in ("perf/tokens_per_s", "perf/mfu")},
        "perf/data_wait_fraction": seconds.waited_s / seconds.trained_s,
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "num_tokens": num_tokens,
        "num_alarms": len(read_json_lines(job.health_path)),
        "train_time_s": seconds.trained_s,
        "steps": job.pretrain.num_steps,
    }


def take_checkpoint(config: PretrainConfig, out: Path) -> dict[str, float | int]:
    """Write encoder and vocabulary of `start_from` to `out`, with its pretraining heads; return the figures.

    ArtifactError if its vocabulary does not fit its embeddings.
    """
    assert config.start_from is not None  # validation requires it where there are no phases
    source, title = Checkpoint.open(config.start_from, config.start_from_revision), checkpoint_title(config)
    # Heads that it lacks stay away: nothing would ever train them.
    model = load_model(source, "mlm") if source.has_mlm_head else load_encoder(source)
    tokenizer = source.tokenizer
    encoder: Any = getattr(model, "bert", model)
    with folder_written_atomically(out) as folder:
        save_model(model, folder)
        if tokenizer.is_wordpiece:
            save_tokenizer(tokenizer, folder)
        else:
            copy_tokenizer(source.folder, folder)
        figures = {
            "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
            "num_hidden_layers": encoder.config.num_hidden_layers,
            "hidden_size": encoder.config.hidden_size,
            "vocab_size": tokenizer.vocab_size,
        }
        versions = versions_of("torch", "tokenizers")
        content = {"metrics": figures, "taken_from": title, "heads": model is not encoder, "versions": versions}
        write_manifest(folder, kind="pretrain", format_version=1, content=content)
    say(f"nothing is pretrained: {title} is the encoder as it is ({figures['num_parameters']:,} parameters)")
    return dict(figures)
