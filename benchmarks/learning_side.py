"""One training of learning.py, in a process of its own: bertline's, or the Hugging Face Trainer's.

The settings come as JSON in the first argument; what is printed is JSON with the held-out loss and the time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
from bare_configuration import build, section
from records import facts_of

from bertline.examples.store import ExampleStore
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.config import ModelConfig
from bertline.modeling.huggingface import load_pretraining_model, save_model
from bertline.modeling.initialization import initialize
from bertline.pretraining.config import ObjectiveConfig, PhaseConfig, PretrainConfig
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.losses import PreTrainingLosses
from bertline.pretraining.plan import Plan
from bertline.pretraining.run import run_pretraining
from bertline.pretraining.validation import ValidationProbe
from bertline.training.config import OptimizerConfig, RuntimeConfig, ScheduleConfig
from bertline.training.devices import resolve_machine

_NEVER = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class SideSettings:
    """What is trained, on what."""

    side: str
    """bertline, plain or tuned."""
    model: dict[str, Any]
    length: int
    batch_size: int
    num_steps: int
    warmup_fraction: float
    optimizer: str
    """A preset of conf/optimizer."""
    lr: float | None
    """None: the preset's own."""
    seed: int
    stop_after_s: float | None
    """The peer's model is looked at after so many seconds of training too."""
    validation_sequences: int
    device: str
    threads: int
    workers: int
    changes: dict[str, Any]
    """Of bertline's runtime section, which the results do not depend on."""
    examples: str
    tokenizer: str
    folder: str
    """To work in."""

    @property
    def num_warmup_steps(self) -> int:
        """The same share of the steps on both sides."""
        return round(self.warmup_fraction * self.num_steps)


def main() -> None:
    """Train, and tell."""
    settings = SideSettings(**json.loads(sys.argv[1]))
    with redirect_stdout(sys.stderr):
        told = train_bertline(settings) if settings.side == "bertline" else train_peer(settings)
    machine = resolve_machine(runtime_of(settings), "auto")
    print(json.dumps({**told, "facts": facts_of(machine)}))


def train_bertline(settings: SideSettings) -> dict[str, Any]:
    """The whole engine, as the stage pretrain runs it."""
    folder = Path(settings.folder)
    phase = {"steps": settings.num_steps, "max_length": settings.length, "global_batch_size": settings.batch_size}
    pretrain = {
        "seed": settings.seed,
        "phases": [phase],
        "validate_every_steps": _NEVER,
        "validation_sequences": 1,
        "checkpoint_every_steps": _NEVER,
        "film_strip": {"every_steps": _NEVER, "num_guesses": 1, "sentences": []},
        "linear_probe": None,
    }
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
    return {"loss": held_out_loss(job.result_folder, settings), "time_s": figures["train_time_s"]}


def train_peer(settings: SideSettings) -> dict[str, Any]:
    """The Hugging Face Trainer with the same start, optimizer, rate, schedule and data, shuffled and masked its way."""
    import hugging_face_peer
    import transformers

    folder = Path(settings.folder)
    optimizer = optimizer_of(settings)
    model = build(ModelConfig, settings.model)
    store = ExampleStore.open(Path(settings.examples), "train", settings.length)

    class Clock(transformers.TrainerCallback):
        """Times the training, and keeps the weights of the moment when the time given is over."""

        saved_s = 0.0
        stopped = False

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
            self.time_s = time.perf_counter() - self.started - self.saved_s
            over = settings.stop_after_s is not None and self.time_s >= settings.stop_after_s
            if over and not self.stopped:
                self.stopped = True
                begun = time.perf_counter()
                model.save_pretrained(folder / "stopped")
                self.saved_s = time.perf_counter() - begun

    clock = Clock()
    job = hugging_face_peer.PeerJob(
        kind="tuned" if settings.side == "tuned" else "plain",
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
            "learning_rate": optimizer.lr,
            "adam_beta1": optimizer.beta1,
            "adam_beta2": optimizer.beta2,
            "adam_epsilon": optimizer.eps,
            "weight_decay": optimizer.weight_decay,
            "max_grad_norm": optimizer.max_grad_norm,
            "lr_scheduler_type": "linear",
            "warmup_steps": settings.num_warmup_steps,
            "seed": settings.seed,
        },
    )
    hugging_face_peer.train_peer(job, [clock]).save_pretrained(folder / "last")
    return {
        "loss": held_out_loss(folder / "last", settings),
        "time_s": clock.time_s,
        "stopped_loss": held_out_loss(folder / "stopped", settings) if clock.stopped else None,
    }


def write_start(folder: Path, config: ModelConfig, manifest: Mapping[str, Any], *, seed: int) -> Path:
    """The random weights that bertline's side draws, in a folder that transformers loads."""
    model = BertForPreTraining(config, vocab_size=manifest["vocab_size"], pad_token_id=manifest["special_ids"]["[PAD]"])
    initialize(model, config, seed=seed)
    save_model(model, folder)
    return folder


def held_out_loss(model_folder: Path, settings: SideSettings) -> float:
    """The masked language model's loss in nats on held-out sequences, whose masks are fixed; fp32, both sides alike."""
    machine = resolve_machine(runtime_of(settings), "fp32")
    losses = PreTrainingLosses(load_pretraining_model(model_folder)).to(machine.device)
    phase = PhaseConfig(steps=1, max_length=settings.length, global_batch_size=settings.batch_size)
    validation = ValidationProbe(
        losses,
        Path(settings.examples),
        Plan([phase], num_steps=1),
        machine=machine,
        every_steps=1,
        max_sequences=settings.validation_sequences,
    )
    return validation.probe(1)["val/mlm_loss"]


def optimizer_of(settings: SideSettings) -> OptimizerConfig:
    """The preset, with the rate that the command line may give."""
    changes = {} if settings.lr is None else {"lr": settings.lr}
    return section(OptimizerConfig, f"optimizer/{settings.optimizer}", **changes)


def runtime_of(settings: SideSettings) -> RuntimeConfig:
    """The runtime section, with what the command line says."""
    values = {"device": settings.device, "num_threads": settings.threads, "num_workers": settings.workers}
    return section(RuntimeConfig, "runtime/default", **{**values, **settings.changes})


if __name__ == "__main__":
    main()
