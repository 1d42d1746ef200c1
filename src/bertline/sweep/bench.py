"""Data and device of a sweep process: each arm's rows, encoded with its own tokenizer, and the
task's teacher."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.job import DevOutcome, EncoderWeights, FineTuningJob, TaskSplit
from bertline.finetuning.task_file import read_teacher
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.progress import say
from bertline.foundation.validation import to_mapping, validate
from bertline.kinds.base import UNLABELLED, TaskKind
from bertline.kinds.registry import task_kind
from bertline.modeling.checkpoint import Checkpoint
from bertline.sweep.folds import STEPS_IN_A_FOLD, calibration_split, folds_of, has_folds, rows_of
from bertline.sweep.job import SweepJob
from bertline.sweep.space import Arm, Params, with_params
from bertline.tasks.stored_rows import SplitName, read_task_manifest
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import resolve_folder
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine, Ranks, resolve_device, resolve_machine

_Of = TypeVar("_Of")


@dataclass(frozen=True, slots=True)
class EncoderStart:
    """Encoder that the trials of an arm start from."""

    title: str
    start: str
    """`pipeline` (its own encoder), `random`, or the configured folder or hub name."""
    folder: Path
    """Folder with the architecture, the tokenizer and, unless they are random, the weights."""
    weights: EncoderWeights


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedSweep:
    """A sweep job with everything that is decided before the first trial; identical in every
    process."""

    job: SweepJob
    starts: Mapping[Arm, EncoderStart]
    """Starting encoder of each arm, in the order in which the arms run."""
    fine_tuning: FineTuningConfig
    """Fine-tuning values of the sweep, overridden by the task's own."""
    ends_s: float | None = None
    """See `FineTuningJob`."""

    def start_of(self, arm: Arm) -> EncoderStart:
        """Return the encoder that an arm starts from; for `combined`, that of the arm `encoder`."""
        return self.starts["encoder" if arm == "combined" else arm]


def plan_of(job: SweepJob) -> PlannedSweep:
    """Resolve the encoders of all arms and the hyperparameters that no trial varies."""
    where = f"tasks.{job.task_name}.fine_tuning"
    values = {**to_mapping(job.sweep.fine_tuning), **job.task.fine_tuning}
    return PlannedSweep(job=job, starts=_starts(job), fine_tuning=validate(FineTuningConfig, values, where=where))


def _starts(job: SweepJob) -> dict[Arm, EncoderStart]:
    match job.task.start_from:
        case None:
            encoder = EncoderStart("pretrained encoder", "pipeline", job.pretrain_folder, "pretrained")
        case "random":
            encoder = EncoderStart("encoder from random weights", "random", job.pretrain_folder, "random")
        case name:
            encoder = EncoderStart(name, name, resolve_folder(name), "pretrained")
    starts: dict[Arm, EncoderStart] = {"encoder": encoder}
    if job.task.teacher is not None:
        starts["without_teacher"] = replace(encoder, title="the same without the teacher")
    wanted = job.sweep.random_weights_baseline == "always"
    if job.sweep.random_weights_baseline == "up_to_small":
        config = Checkpoint.open(encoder.folder).config
        # BERT-small (arXiv 1908.08962, table 1) has 4 layers of hidden size 512.
        wanted = config.num_hidden_layers <= 4 and config.hidden_size <= 512 and encoder.start == "pipeline"
    is_own = job.sweep.exported == "own" or (job.sweep.exported == "winner" and not job.sweep.encoders)
    if encoder.weights == "pretrained" and is_own and wanted:
        starts["random_weights"] = EncoderStart("the same from random weights", "random", encoder.folder, "random")
    for number, other in enumerate(job.sweep.encoders, start=2):
        starts[f"encoder_{number}"] = EncoderStart(other, other, resolve_folder(other), "pretrained")
        Checkpoint.open(starts[f"encoder_{number}"].folder)
    if job.sweep.encoders:
        folders = (start.folder for arm, start in starts.items() if arm.startswith("encoder"))
        refuse_same_encoders("sweep.encoders", folders)
    return starts


def refuse_same_encoders(key: str, folders: Iterable[Path]) -> None:
    """Check that no encoder is named twice under a key.

    Raises:
        ConfigError: Two names are of one folder.
    """
    for folder, number in Counter(folder.resolve() for folder in folders).items():
        if number > 1:
            raise ConfigError(
                f"{key}: {folder} is named twice. Name each encoder once; the one that the task starts from is always "
                "among those compared."
            )


def led_by(arm: Arm, by_arm: Mapping[Arm, _Of]) -> dict[Arm, _Of]:
    """Return a mapping in which `arm` and `encoder` have changed names.

    >>> led_by("encoder_2", {"encoder": "own", "encoder_2": "best", "encoder_3": "last"})
    {'encoder': 'best', 'encoder_2': 'own', 'encoder_3': 'last'}
    """
    renamed = {{arm: "encoder", "encoder": arm}.get(name, name): value for name, value in by_arm.items()}
    return dict(sorted(renamed.items(), key=lambda item: item[0] != "encoder"))


LENGTHS = ("max_length", "query_max_length")
"""Task fields that limit the number of tokens of a sequence."""
# What decides what a teacher and its student read and what their outputs mean; other settings may
# differ.
_SHARED = ("kind", "head", "multi_label", "low", "high", "similarity", "shared_tokens", "word_case")
_SOFT_TARGETS = "soft_targets.npy"


class Teacher:
    """A fine-tuned model of the task `kind` as the student reads it, of any family with the
    student's `tokenizer`."""

    def __init__(self, folder: Path, kind: TaskKind[Any, Any, Any], tokenizer: Tokenizer) -> None:
        self.folder, self.kind, self.finished = folder, kind, read_teacher(folder)
        theirs = self.finished.kind
        vocabulary = Tokenizer.load(folder).vocab
        if vocabulary != tokenizer.vocab:
            raise ConfigError(
                f"teacher {folder} has another vocabulary ({len(vocabulary):,} tokens) than its student "
                f"({tokenizer.vocab_size:,}): its soft targets are of token ids that mean other tokens there. Start "
                "from an encoder with the teacher's vocabulary, such as its own layers (student_layers)."
            )
        pairs = {name: (getattr(theirs.config, name, None), getattr(kind.config, name, None)) for name in _SHARED}
        pairs["labels"] = theirs.labels, kind.labels
        for name, (of_teacher, of_student) in pairs.items():
            if of_teacher != of_student:
                raise ConfigError(
                    f"teacher {folder} was fine-tuned with {name} {of_teacher!r}, and this task has {of_student!r}. "
                    "Fine-tune the teacher on this task, or set the task as it was."
                )
        positions = Checkpoint.open(folder).config.max_position_embeddings
        if positions < kind.config.max_length:
            raise ConfigError(
                f"teacher {folder} has positions for {positions} tokens; set the task's max_length, "
                f"{kind.config.max_length}, to no more."
            )

    def soft_targets(self, encoded: Any, machine: Machine, place: Path) -> NDArray[np.float32]:
        """Return the soft targets of rows, from a folder that the first call of all processes
        writes."""
        if not place.exists():
            say(f"{place.name}: the teacher computes its soft targets")
            soft = self.kind.soft_targets(self._model(machine), encoded, replace(machine, precision="fp32"))
            with folder_written_atomically(place) as folder:
                np.save(folder / _SOFT_TARGETS, soft)
        return np.load(place / _SOFT_TARGETS, mmap_mode="r", allow_pickle=False)

    def scores(self, rows: Any, encoded: Any, machine: Machine) -> dict[str, float]:
        """Return its own scores, in fp32 as it serves."""
        predictions = self.kind.predict(self._model(machine), encoded, replace(machine, precision="fp32"))
        return self.kind.scores(self.kind.statistics(rows, predictions, self.finished.calibration))

    def _model(self, machine: Machine) -> nn.Module:
        return self.kind.load_model(self.folder).to(machine.device)


class ArmBench:
    """Task data of one arm: the rows of each split and their encoding, loaded once; with a teacher
    its soft targets."""

    def __init__(self, job: SweepJob, start: EncoderStart, machine: Machine, teacher: str | None = None) -> None:
        self._job, self.start, self._machine = job, start, machine
        self.kind: TaskKind[Any, Any, Any] = kind_of(job, start)
        self._tokenizer = Tokenizer.load(start.folder)
        self.teacher = None if teacher is None else Teacher(Path(teacher), self.kind, self._tokenizer)
        self._splits: dict[tuple[SplitName, int | None], TaskSplit] = {}

    def split(self, name: SplitName, num_rows: int | None = None) -> TaskSplit:
        """Return a split, or its first `num_rows` rows."""
        if (name, num_rows) not in self._splits:
            rows = rows_of(self._job, self.kind, name).first(num_rows)
            encoded, soft = self.kind.encode(rows, self._tokenizer), None
            if self.teacher is not None and name in ("train", UNLABELLED):
                place = self._job.run_folder / "teacher" / f"{name}-{num_rows or 'all'}"
                soft = self.teacher.soft_targets(encoded, self._machine, place)
            self._splits[name, num_rows] = TaskSplit(rows=rows, encoded=encoded, soft_targets=soft)
        return self._splits[name, num_rows]

    def encoded(self, rows: Any) -> TaskSplit:
        """Return rows with their encoding."""
        return TaskSplit(rows=rows, encoded=self.kind.encode(rows, self._tokenizer))

    def num_cut(self, name: SplitName, num_rows: int | None = None) -> int:
        """Return the number of truncated rows in a split, or in its first `num_rows` rows."""
        return self.kind.num_cut(self.split(name, num_rows).encoded)


class Bench:
    """Data and machine of a sweep in one process, whose number on this machine, `worker`, selects
    its device."""

    def __init__(self, plan: PlannedSweep, *, worker: int = 0) -> None:
        self.plan = plan
        self.job = plan.job
        self.runtime = _runtime_of_a_worker(plan.job.runtime)
        self.machine = resolve_machine(self.runtime, plan.job.sweep.precision)
        if self.machine.device.type == "cuda":
            device = torch.device("cuda", worker % torch.cuda.device_count())
            torch.cuda.set_device(device)
            self.machine = replace(self.machine, device=device)
        self._arms: dict[Arm, ArmBench] = {}

    def arm(self, arm: Arm) -> ArmBench:
        """Return the data of an arm, loaded on first use."""
        if arm not in self._arms:
            teacher = self.job.task.teacher if arm == "encoder" else None
            self._arms[arm] = ArmBench(self.job, self.plan.starts[arm], self.machine, teacher)
        return self._arms[arm]

    def run(
        self, arm: Arm, params: Params, *, num_train_rows: int | None, seed: int, checks: tuple[float, ...] = ()
    ) -> FineTuningJob:
        """Return the fine-tuning job for a point of the search space."""
        bench = self.arm(arm)
        config = with_params(self.plan.fine_tuning, params)
        if arm == "random_weights" and "layer_decay" not in params:
            # Lower rates in lower layers preserve what pretraining learned; random weights have
            # nothing to preserve.
            config = replace(config, layer_decay=1.0)
        return FineTuningJob(
            kind=bench.kind,
            config=config,
            encoder=bench.start.weights,
            encoder_folder=bench.start.folder,
            train=bench.split("train", num_train_rows),
            dev=None if has_folds(self.job) else bench.split("dev"),
            unlabelled=bench.split(UNLABELLED) if bench.teacher and self.job.task.unlabelled else None,
            seed=seed,
            machine=self.machine,
            runtime=self.runtime,
            checks=checks,
            ends_s=self.plan.ends_s,
        )

    def out_of_fold(self, arm: Arm, params: Params, *, seed: int, title: str) -> DevOutcome:
        """Return the outcome on all rows of predictions by models that were trained on the other
        folds."""
        bench, run = self.arm(arm), self.run(arm, params, num_train_rows=None, seed=seed)
        rows, exact = run.train.rows, replace(self.machine, precision="fp32")
        predictions: Any = None
        folds = folds_of(rows, self.job.sweep.seed)
        for number, (learned, predicted) in enumerate(folds, start=1):
            split = bench.encoded(rows.take(learned))
            of_fold = f"{title}, fold {number} of {len(folds)}"
            model = fine_tune(replace(run, train=split, most_steps=STEPS_IN_A_FOLD, title=of_fold)).model
            found = run.kind.predict(model, bench.encoded(rows.take(predicted)).encoded, exact)
            predictions = np.zeros((len(rows), *found.shape[1:]), found.dtype) if predictions is None else predictions
            predictions[predicted] = found
        calibration = run.kind.calibrate(rows, predictions)
        statistics = run.kind.statistics(rows, predictions, calibration)
        return DevOutcome(run.kind.scores(statistics), calibration, statistics)


def kind_of(job: SweepJob, start: EncoderStart) -> TaskKind[Any, Any, Any]:
    """Return the task kind for an encoder, with lengths limited to the encoder's number of
    positions."""
    labels = read_task_manifest(job.task_folder)["labels"]
    positions = Checkpoint.open(start.folder).config.max_position_embeddings
    lengths = {name: min(getattr(job.task, name), positions) for name in LENGTHS if hasattr(job.task, name)}
    try:
        return task_kind(replace(job.task, **lengths), labels)
    except ValueError as error:
        raise ConfigError(
            f"{start.folder} has positions for {positions} tokens, and with that many tasks.{job.task_name} cannot be "
            f"read: {error}."
        ) from error


def test_splits(job: SweepJob) -> list[SplitName]:
    """Return `test`, then the task's extra test splits sorted by name."""
    counts = read_task_manifest(job.task_folder)["counts"]
    return ["test", *sorted(name for name in counts if name.startswith("test_"))]


def split_sizes(job: SweepJob) -> dict[str, int]:
    """Return the number of rows of each split; for train, of the rows that the sweep trains on.
    With folds, train and dev are the same rows."""
    counts: dict[str, int] = read_task_manifest(job.task_folder)["counts"]
    if has_folds(job):
        return {**counts, **dict.fromkeys(("train", "dev"), counts["train"] + counts["dev"])}
    if (aside := calibration_split(job)) != "dev":
        counts |= {"dev": counts["dev"] - counts["dev"] // 2, aside: counts["dev"] // 2}
    return {**counts, "train": min(job.task.num_train_rows or counts["train"], counts["train"])}


def num_sweep_workers(runtime: RuntimeConfig) -> int:
    """Return how many processes share a sweep: `runtime.sweep_workers`, else one for each visible
    CUDA device.

    On a CPU it is 2, whatever its cores: each worker loads the rows and an encoder, and not all
    memory grows with them.
    """
    if runtime.sweep_workers is not None:
        return runtime.sweep_workers
    # The devices that pretraining is to use need not all be there: each worker uses one.
    device = resolve_device(replace(runtime, num_devices=1, num_nodes=1), Ranks()).type
    return torch.cuda.device_count() if device == "cuda" else 2 if device == "cpu" else 1


def _runtime_of_a_worker(runtime: RuntimeConfig) -> RuntimeConfig:
    """Return the runtime of one worker: one device, one thread unless configured otherwise, no
    compilation.

    Runs are short, of many shapes, so compilation does not pay. Threads affect how sums are
    rounded, so their default depends neither on cores nor on workers. Fine-tuning packs no rows, so
    `varlen` attention becomes `auto`.
    """
    attention = "auto" if runtime.attention == "varlen" else runtime.attention
    threads = runtime.num_threads or 1
    return replace(runtime, num_devices=1, num_nodes=1, num_threads=threads, compile="off", attention=attention)
