"""The root configuration: all sections, and the rules between sections."""

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.corpus.registry import CorpusConfig, NoCorpusConfig
from bertline.demo.config import PythonDocsConfig
from bertline.evaluation.config import EvaluateConfig
from bertline.examples.config import ExamplesConfig
from bertline.export.config import ExportConfig
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.validation import validate
from bertline.kinds.registry import TaskConfig
from bertline.modeling.config import ModelConfig
from bertline.pretraining.config import PretrainConfig
from bertline.pretraining.objectives import ObjectiveConfig
from bertline.sweep.config import SweepConfig
from bertline.tasks.config import ChoiceSpace
from bertline.tokenization.config import NoTokenizerConfig, TokenizerConfig
from bertline.tracking.config import STUDIES_VARIABLE, TrackingConfig
from bertline.tracking.secrets import refuse_secrets
from bertline.training.config import RuntimeConfig, ScheduleConfig
from bertline.training.optimizers import OptimizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineConfig:
    """Configuration of the whole pipeline, as composed from `conf/`."""

    python_docs: PythonDocsConfig
    corpus: CorpusConfig | NoCorpusConfig
    tokenizer: TokenizerConfig | NoTokenizerConfig
    examples: ExamplesConfig
    model: ModelConfig
    objective: ObjectiveConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    pretrain: PretrainConfig
    tasks: dict[str, TaskConfig]
    sweep: SweepConfig
    evaluate: EvaluateConfig
    export: ExportConfig
    runtime: RuntimeConfig
    tracking: TrackingConfig

    @property
    def pretrains(self) -> bool:
        """Whether an encoder is pretrained; else the checkpoint of `pretrain.start_from` is fine-tuned as it is."""
        return bool(self.pretrain.phases)


UNTRACKED_SECTIONS = ("runtime", "tracking")
"""These affect speed and locations, never results, so no fingerprint covers them."""
_TASK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
SECTIONS = tuple(field.name for field in dataclasses.fields(PipelineConfig))


def without_untracked(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that results depend on."""
    return {key: value for key, value in mapping.items() if key not in UNTRACKED_SECTIONS}


def pipeline_config(mapping: Mapping[str, Any]) -> PipelineConfig:
    """Validate a composed configuration, each section and the rules between them; ConfigError names all problems."""
    refuse_secrets(mapping)  # first: messages about other problems repeat values
    config = each_section(mapping)
    problems = list(_broken_rules(config))
    if problems:
        raise ConfigError("The configuration is not valid:\n" + "\n".join(f"  - {problem}" for problem in problems))
    return config


def sections_in(composed: Mapping[str, Any]) -> PipelineConfig:
    """Validate the sections of the pipeline in a composed configuration, which may hold more."""
    return pipeline_config({key: composed[key] for key in SECTIONS if key in composed})


def each_section(mapping: Mapping[str, Any]) -> PipelineConfig:
    """Validate each section of a composed configuration, without the rules between sections."""
    model = mapping.get("model")
    if isinstance(model, Mapping) and model.get("family", "bert") != "bert":
        # Imported here, because it needs torch and transformers.
        from bertline.encoders.wrapped import model_section

        try:
            mapping = {**mapping, "model": model_section(model)}
        except (ArtifactError, TypeError) as error:  # a text in place of a number
            raise ConfigError(f"model cannot be made: {error}") from error
    return validate(PipelineConfig, mapping)


def _broken_rules(config: PipelineConfig) -> Iterator[str]:
    yield from _broken_pretraining_rules(config) if config.pretrains else _broken_finetune_rules(config)
    for name, task in config.tasks.items():
        if not _TASK_NAME.fullmatch(name):
            allowed = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-") or "my_task"
            yield (
                f"tasks has the name {name!r}, which cannot be a folder, a DVC stage and a name in MLflow. Use letters "
                f"(a-z), digits, '_' and '-', beginning with a letter, a digit or '_': for example {allowed!r}."
            )
        yield from _broken_task_rules(config, name, task)
    launcher, studies = config.runtime.launcher, os.environ.get(STUDIES_VARIABLE) or config.tracking.studies_url
    if launcher.kind == "slurm" and launcher.sweep_tasks > 1 and studies.startswith("sqlite"):
        yield (
            f"runtime.launcher.sweep_tasks is {launcher.sweep_tasks}, but nodes cannot share a study in SQLite: "
            f"give a PostgreSQL database in tracking.studies_url or {STUDIES_VARIABLE}, or sweep_tasks=1."
        )


def _broken_finetune_rules(config: PipelineConfig) -> Iterator[str]:
    """Check that without pretraining all its sections are empty, so that no report describes them."""
    kinds = (("corpus.kind", config.corpus.kind, "none"), ("tokenizer.kind", config.tokenizer.kind, "none"))
    for key, found, expected in (*kinds, ("examples.lengths", list(config.examples.lengths), [])):
        if found != expected:
            yield (
                f"{key} is {found}, but nothing is pretrained (pretrain.phases is empty). Use experiment=finetune, "
                f"which sets it to {expected}, or give pretrain.phases."
            )


def _broken_family_rules(config: PipelineConfig) -> Iterator[str]:
    """Check what the pretraining of a family cannot do."""
    from bertline.modeling.families import FAMILIES

    family, families = FAMILIES[config.model.family], config.objective.families
    instead = "mlm" if "bert" in families else f"mlm, or a model of {FAMILIES[next(iter(families))].title}"
    optimizer, tokenizer, packing = config.optimizer.kind, config.tokenizer.kind, config.runtime.packing
    embeddings = config.pretrain.initial_embeddings
    has_embeddings = embeddings is None or family.can("initial_embeddings")
    # For each key: what is found, whether that can be, and what can.
    found = (
        ("objective.kind", config.objective.kind, config.model.family in families, instead),
        ("optimizer.kind", optimizer, optimizer != "muon" or family.can("muon"), "adamw"),
        ("tokenizer.kind", tokenizer, tokenizer != "extended" or family.can("new_words"), "trained or existing"),
        ("pretrain.initial_embeddings", embeddings, has_embeddings, "null"),
        ("runtime.packing", packing, packing != "on" or family.can("packing"), "off"),
    )
    for key, value, is_possible, other in found:
        if not is_possible:
            yield f"{key} is {value}, which the pretraining of {family.title} does not have. Use {other}."


def _broken_pretraining_rules(config: PipelineConfig) -> Iterator[str]:
    for key, kind in (("corpus", config.corpus.kind), ("tokenizer", config.tokenizer.kind)):
        if kind == "none":
            yield f"{key}.kind is none, but pretrain.phases asks for training. Choose a {key}, or experiment=finetune."
    yield from _broken_family_rules(config)
    objective, num_segments = config.objective, config.examples.num_segments
    if num_segments != objective.num_segments:
        yield (
            f"objective.kind is {objective.kind}, which learns from sequences of {objective.num_segments} segment(s), "
            f"but the examples have {num_segments}. Use examples={objective.examples}, or another objective."
        )
    batch_sizes = [phase.global_batch_size for phase in config.pretrain.phases]
    yield from objective.problems(dataclasses.asdict(config.examples), batch_sizes, model=config.model, num_ranks=1)
    if getattr(config.corpus, "validation_fraction", None) == 0:
        yield "corpus.validation_fraction is 0, but examples need text for validation. Set it above 0, such as 0.02."
    longest = config.model.max_position_embeddings
    for index, length in enumerate(config.examples.lengths):
        if length > longest:
            yield (
                f"examples.lengths[{index}] is {length}, but the model has positions for {longest} tokens "
                "(model.max_position_embeddings). Shorten the length or give the model more positions."
            )
    for index, phase in enumerate(config.pretrain.phases):
        if phase.max_length not in config.examples.lengths:
            yield (
                f"pretrain.phases[{index}].max_length is {phase.max_length}; examples are made for "
                f"{list(config.examples.lengths)} (examples.lengths). Add the length there or use one of these."
            )
    # pretrain.max_steps is not checked: a quick trial may end during its warmup.
    num_steps = sum(phase.steps for phase in config.pretrain.phases)
    warmup, decay = config.schedule.num_warmup_steps, getattr(config.schedule, "num_decay_steps", None) or 0
    if warmup + decay > num_steps:
        and_decay = f" and schedule.num_decay_steps {decay}, together" if decay else ","
        yield (
            f"schedule.num_warmup_steps is {warmup}{and_decay} more than the {num_steps} steps of pretrain.phases. "
            f"Warm up{' or decay' if decay else ''} for less, or train for longer."
        )
    if config.pretrain.start_from is not None and config.tokenizer.kind in ("trained", "byte_bpe"):
        yield (
            f"pretrain.start_from is {config.pretrain.start_from!r}, but tokenizer.kind is "
            f"{config.tokenizer.kind!r}: a checkpoint only fits its own vocabulary. Add tokenizer=existing "
            f"tokenizer.path={config.pretrain.start_from}, or tokenizer=extended, which adds words of the corpus to it."
        )
    if config.pretrain.start_from is None and config.tokenizer.kind == "extended":
        yield (
            "tokenizer.kind is extended, which adds words to the vocabulary of a checkpoint, but pretrain.start_from "
            "is null. Name the checkpoint there, or train a vocabulary for random weights (tokenizer=wordpiece)."
        )


def how_to_register(task: str | None) -> str:
    """Return the end of a message: the line that registers `conf/task/TASK.yaml` as a task, if the file exists."""
    if task is None or not _TASK_NAME.fullmatch(task) or not Path("conf/task", f"{task}.yaml").is_file():
        return ""
    return (
        f"\nThe file conf/task/{task}.yaml is not registered. Add it to the `defaults:` of conf/config.yaml:\n"
        f"  - task@tasks.{task}: {json.dumps(task)}\n"
        "Then run `bertline configure`."
    )


def _broken_task_rules(config: PipelineConfig, name: str, task: TaskConfig) -> Iterator[str]:
    # A checkpoint has its own number of positions, to which the sweep lowers `max_length`.
    has_own_encoder = config.pretrains and task.start_from in (None, "random")
    if has_own_encoder and task.max_length > config.model.max_position_embeddings:
        yield (
            f"tasks.{name}.max_length is {task.max_length}, but the model has positions for "
            f"{config.model.max_position_embeddings} tokens (model.max_position_embeddings)."
        )
    has_types = config.model.type_vocab_size > 0
    needs = {"shared_tokens": has_types and config.tokenizer.kind != "byte_bpe", "word_case": has_types}
    for key, is_possible in needs.items():
        if has_own_encoder and getattr(task, key, "plain") == "marked" and not is_possible:
            yield (
                f"tasks.{name}.{key} is marked, which needs an encoder with token types"
                f"{' and a WordPiece tokenizer' if key == 'shared_tokens' else ''}. Set it to plain."
            )
    known = [field.name for field in dataclasses.fields(config.sweep.fine_tuning)]
    for key in [*(f"space.{name}" for name in task.space), *(f"fine_tuning.{name}" for name in task.fine_tuning)]:
        if key.partition(".")[2] not in known:
            yield f"tasks.{name}.{key} is not a field of sweep.fine_tuning; known: {', '.join(known)}."
    if config.sweep.sampler.kind == "grid":
        for key, space in config.sweep.searched(task).items():
            if not isinstance(space, ChoiceSpace):
                yield f"sweep.sampler.kind is grid, but {key} (of task {name}) is {space.kind}; a grid needs choices."
