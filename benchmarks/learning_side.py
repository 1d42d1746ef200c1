"""One training of learning.py, in a separate process: bertline's, or the Hugging Face Trainer's.

The first argument has the settings as JSON; the output is JSON with the loss and the time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import repository_source  # noqa: F401
from bare_configuration import UNWATCHED, build, section
from measurements import facts_of

from bertline.encoders.loading import save_model
from bertline.examples.store import ExampleStore
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.config import ModelConfig
from bertline.modeling.huggingface import load_with_head
from bertline.modeling.initialization import initialize
from bertline.pretraining.config import PhaseConfig, PretrainConfig
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.objectives import ObjectiveConfig
from bertline.pretraining.plan import Plan, shuffled
from bertline.pretraining.probes import ValidationProbe
from bertline.pretraining.run import run_pretraining
from bertline.training.config import RuntimeConfig, ScheduleConfig
from bertline.training.devices import resolve_machine
from bertline.training.optimizers import AdamWConfig, MuonConfig, OptimizerConfig

_BATCH_TOKENS = 8192
_STARTING_STEPS = 10
"""Number of steps at the start of a training that the time per step does not count."""


@dataclass(frozen=True, kw_only=True)
class SideSettings:
    """Settings of one training."""

    side: str
    """`bertline`, or `tuned`: the Trainer."""
    model: dict[str, Any]
    length: int
    batch_size: int
    num_steps: int
    warmup_fraction: float
    optimizer: str
    """A preset of conf/optimizer."""
    optimizer_changes: dict[str, float]
    """Changed fields of the preset."""
    seed: int
    share: str
    """Share of the validation sequences that the loss is computed on: `held_out`, or `dev`, which is never reported."""
    validation_sequences: int
    """Maximum number of sequences in each share."""
    device: str
    threads: int
    workers: int
    changes: dict[str, Any]
    """Changed keys of bertline's runtime section, which results do not depend on."""
    examples: str
    tokenizer: str
    folder: str
    """Folder for temporary files."""

    @property
    def num_warmup_steps(self) -> int:
        """Number of warm-up steps, the same on both sides."""
        return round(self.warmup_fraction * self.num_steps)


def main() -> None:
    """Train, and print the results."""
    settings = SideSettings(**json.loads(sys.argv[1]))
    with redirect_stdout(sys.stderr):
        told = train_bertline(settings) if settings.side == "bertline" else train_trainer(settings)
    machine = resolve_machine(runtime_of(settings), "auto")
    print(json.dumps({**told, "facts": facts_of(machine)}))


def train_bertline(settings: SideSettings) -> dict[str, Any]:
    """Train with the whole engine, as the pretrain stage runs it; return the results."""
    folder = Path(settings.folder)
    phase = {"steps": settings.num_steps, "max_length": settings.length, "global_batch_size": settings.batch_size}
    pretrain = {"seed": settings.seed, "phases": [phase], **UNWATCHED}
    job = PretrainJob(
        model=build(ModelConfig, settings.model),
        objective=section(ObjectiveConfig, "objective/mlm_nsp"),
        optimizer=optimizer_of(settings),
        schedule=section(ScheduleConfig, "schedule/linear", num_warmup_steps=settings.num_warmup_steps),
        pretrain=section(PretrainConfig, "pretrain/default", **pretrain),
        runtime=runtime_of(settings),
        examples_folder=Path(settings.examples),
        tokenizer_folder=Path(settings.tokenizer),
        run_folder=folder,
    )
    figures = run_pretraining(job)
    return {"loss": loss_on_share(job.result_folder, settings), "time_s": figures["train_time_s"]}


def train_trainer(settings: SideSettings) -> dict[str, Any]:
    """Train with the Trainer: same initial weights, optimizer, schedule and data, but its own shuffling and masking."""
    import transformers
    from hugging_face_peer import MuonAndAdamW, PeerJob, train_peer

    folder = Path(settings.folder)
    optimizer = optimizer_of(settings)
    model = build(ModelConfig, settings.model)
    store = ExampleStore.open(Path(settings.examples), "train", settings.length)

    class Clock(transformers.TrainerCallback):
        """Records when training began and when each step ended."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.times = [time.perf_counter()]

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.times.append(time.perf_counter())

    clock = Clock()
    job = PeerJob(
        kind="tuned",
        model=model,
        store=store,
        tokenizer_folder=Path(settings.tokenizer),
        full_length=False,
        sequences_an_epoch=len(store),
        machine=resolve_machine(runtime_of(settings), "auto"),
        workers=settings.workers,
        batch_size=settings.batch_size,
        num_steps=settings.num_steps,
        out=folder / "trainer",
        start_from=write_start(folder / "start", model, store.manifest, seed=settings.seed),
        options={
            "max_grad_norm": optimizer.max_grad_norm,
            "lr_scheduler_type": "linear",
            "warmup_steps": settings.num_warmup_steps,
            "seed": settings.seed,
            **adamw_arguments(optimizer),
        },
        optimizer=partial(MuonAndAdamW, config=optimizer) if isinstance(optimizer, MuonConfig) else None,
    )
    train_peer(job, [clock]).save_pretrained(folder / "last")
    return {"loss": loss_on_share(folder / "last", settings), **pace_of(clock.times)}


def adamw_arguments(optimizer: OptimizerConfig) -> dict[str, Any]:
    """Return AdamW's settings as arguments of the Trainer; empty if the Trainer gets an optimizer instead."""
    if not isinstance(optimizer, AdamWConfig):
        return {}
    return {
        "learning_rate": optimizer.lr,
        "adam_beta1": optimizer.beta1,
        "adam_beta2": optimizer.beta2,
        "adam_epsilon": optimizer.eps,
        "weight_decay": optimizer.weight_decay,
    }


def pace_of(times: list[float]) -> dict[str, float]:
    """Return the seconds of a training: in total, per step at steady speed, and for startup (mostly compilation).

    Args:
        times: Times at which training began and each step ended.

    >>> pace_of([0.0, 60.0, 61.0, 62.0, 63.0])
    {'time_s': 63.0, 'step_s': 1.0, 'startup_s': 59.0}
    """
    first = min(_STARTING_STEPS, (len(times) - 1) // 2)
    step_s = (times[-1] - times[first]) / (len(times) - 1 - first)
    time_s = times[-1] - times[0]
    return {"time_s": time_s, "step_s": step_s, "startup_s": max(0.0, time_s - step_s * (len(times) - 1))}


def write_start(folder: Path, config: ModelConfig, manifest: Mapping[str, Any], *, seed: int) -> Path:
    """Write the initial weights of bertline's side to a folder that transformers can load; return the folder."""
    model = BertForPreTraining(config, vocab_size=manifest["vocab_size"], pad_token_id=manifest["special_ids"]["[PAD]"])
    initialize(model, config, seed=seed)
    save_model(model, folder)
    return folder


def loss_on_share(model_folder: Path, settings: SideSettings) -> float:
    """Compute the MLM loss in nats on validation sequences with fixed masks, in fp32 for both sides."""
    machine = resolve_machine(runtime_of(settings), "fp32")
    objective = section(ObjectiveConfig, "objective/mlm_nsp")
    losses = PreTrainingLosses(load_with_head(model_folder, BertForPreTraining), objective).to(machine.device)
    phase = PhaseConfig(steps=1, max_length=settings.length, global_batch_size=settings.batch_size)
    validation = ShareProbe(
        losses,
        Path(settings.examples),
        Plan([phase], num_steps=1),
        machine=machine,
        every_steps=1,
        max_sequences=settings.validation_sequences,
    )
    validation.share = settings.share
    return validation.probe(1)["val/mlm_loss"]


class ShareProbe(ValidationProbe):
    """Validation probe on one of two disjoint shares of the validation sequences."""

    share = "held_out"

    def _batches(self, examples: MaskedExamples) -> Iterator[dict[str, np.ndarray]]:
        indices = share_of_validation(self.share, self.max_sequences, len(examples), seed=examples.seed)
        size = max(1, _BATCH_TOKENS // examples.store.max_length)
        for start in range(0, len(indices), size):
            yield examples.batch(indices[start : start + size], epoch=0)


def share_of_validation(share: str, most: int, count: int, *, seed: int) -> np.ndarray:
    """Return indices of a share among `count` sequences: `held_out` are those pretraining validates on, `dev` the next.

    >>> held_out, dev = (share_of_validation(share, 4, 6, seed=0) for share in ("held_out", "dev"))
    >>> len(held_out), len(dev), sorted([*held_out.tolist(), *dev.tolist()])
    (3, 3, [0, 1, 2, 3, 4, 5])
    """
    size = min(most, count // 2)
    first = 0 if share == "held_out" else size
    return shuffled(np.arange(first, first + size), count, seed=seed, epoch=0)


def optimizer_of(settings: SideSettings) -> OptimizerConfig:
    """Return the preset with the changed fields."""
    return section(OptimizerConfig, f"optimizer/{settings.optimizer}", **settings.optimizer_changes)


def runtime_of(settings: SideSettings) -> RuntimeConfig:
    """Return the runtime section with the settings' changes."""
    values = {"device": settings.device, "num_threads": settings.threads, "num_workers": settings.workers}
    return section(RuntimeConfig, "runtime/default", **{**values, **settings.changes})


if __name__ == "__main__":
    main()
