"""Trainings of learning.py, each in a separate process and none repeated within a work folder, and the peer's grid."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
import torch
from bare_configuration import parse_changes, section
from processes import side_environment

from bertline.modeling.config import ModelConfig
from bertline.training.optimizers import MuonConfig, OptimizerConfig

HERE = Path(__file__).parent
UNREPORTED_SEED = 100
"""Seed of the whole grid and of the bertline training that sets its time; no reported training uses it."""
_PACE_STEPS = 60
_MOST_EXTENSIONS = 2
_CODE = (HERE, HERE.parent / "src" / "bertline", HERE.parent / "conf")
_CODE_SUFFIXES = (".py", ".yaml")


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """A preset of conf/optimizer with changed fields."""

    preset: str
    lr: float | None = None
    """Learning rate; the rate of Muon's AdamW is scaled by the same factor. None keeps the rates of the preset."""
    beta2: float | None = None

    @property
    def changes(self) -> dict[str, float]:
        """Changed fields, as arguments of `bare_configuration.section`."""
        own = section(OptimizerConfig, f"optimizer/{self.preset}")
        changes = {} if self.beta2 is None else {"beta2": self.beta2}
        if self.lr is not None:
            changes["lr"] = self.lr
            if isinstance(own, MuonConfig):
                changes["adamw_lr"] = self.lr * own.adamw_lr / own.lr
        return changes

    @property
    def config(self) -> OptimizerConfig:
        """The preset with the changes."""
        return section(OptimizerConfig, f"optimizer/{self.preset}", **self.changes)

    def __str__(self) -> str:
        config: Any = self.config
        if isinstance(config, MuonConfig):
            return f"Muon {config.lr:g} with AdamW {config.adamw_lr:g}, beta2 {config.beta2:g}"
        return f"{'AdamW' if config.kind == 'adamw' else config.kind} {config.lr:g}, beta2 {config.beta2:g}"


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings of one training."""

    side: str
    """`bertline`, or `tuned`: the Trainer."""
    optimizer: Optimizer
    num_steps: int
    seed: int
    share: str = "held_out"
    """Share of the validation sequences that the loss is computed on: `held_out` or `dev`."""
    timed: bool = True
    """Whether the training starts with an empty compile cache; trainings that are not timed share one."""


class Trainings:
    """Runs trainings, prints a line for each, and keeps the results in the work folder.

    A result is identified by the training's settings, the data, the code of bertline and of the benchmarks, and the
    version of PyTorch: an interrupted benchmark that is started again resumes with the first missing training.
    """

    def __init__(self, work: Path, arguments: argparse.Namespace, model: ModelConfig, *, data_digest: str) -> None:
        self._work = work
        self._arguments = arguments
        self._model = model
        self._identity = [data_digest, code_digest(), torch.__version__]
        self._began = time.monotonic()

    def run(self, training: Training) -> dict[str, Any]:
        """Return the output of learning_side.py: `loss`, `time_s`, `facts`, for the peer also `step_s` and `startup_s`.

        Raises:
            SystemExit: The training failed.
        """
        settings = self._settings(training)
        # Identified by the whole optimizer, because an unchanged preset may equal the one chosen for the peer.
        optimizer = {"optimizer": asdict(training.optimizer.config), "optimizer_changes": None}
        of_all = json.dumps([{**settings, **optimizer}, training.timed, *self._identity], sort_keys=True)
        kept = self._work / "trainings" / f"{hashlib.sha256(of_all.encode()).hexdigest()[:16]}.json"
        again = kept.exists()
        told = json.loads(kept.read_text(encoding="utf-8")) if again else self._train(training, settings)
        if not again:
            kept.parent.mkdir(parents=True, exist_ok=True)
            unfinished = kept.with_suffix(".part")
            unfinished.write_text(json.dumps({"training": asdict(training), **told}) + "\n", encoding="utf-8")
            unfinished.replace(kept)
        print(
            f"[{(time.monotonic() - self._began) / 60:6.1f} min] seed {training.seed}, {training.side:8s} "
            f"{training.optimizer!s:42s} {training.num_steps:6d} steps in {told['time_s']:7.1f} s: {training.share} "
            f"loss {told['loss']:.4f}{' (from the work folder)' if again else ''}",
            flush=True,
        )
        return told

    def _settings(self, training: Training) -> dict[str, Any]:
        arguments = self._arguments
        return {
            "side": training.side,
            "model": asdict(self._model),
            "length": arguments.length,
            "batch_size": arguments.batch_size,
            "num_steps": training.num_steps,
            "warmup_fraction": arguments.warmup_fraction,
            "optimizer": training.optimizer.preset,
            "optimizer_changes": training.optimizer.changes,
            "seed": training.seed,
            "share": training.share,
            "validation_sequences": arguments.validation_sequences,
            "device": arguments.device,
            "threads": arguments.threads,
            "workers": arguments.workers,
            "changes": parse_changes(arguments.set).get("runtime", {}),
        }

    def _train(self, training: Training, settings: dict[str, Any]) -> dict[str, Any]:
        arguments = self._arguments
        shared = self._work / f"compiled-{training.side}"
        with tempfile.TemporaryDirectory(dir=self._work, prefix="training-", ignore_cleanup_errors=True) as folder:
            places = {"examples": str(arguments.examples), "tokenizer": str(arguments.tokenizer), "folder": folder}
            environment = side_environment(training.side, threads=arguments.threads)
            environment["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder, "compiled") if training.timed else shared)
            process = subprocess.run(
                [sys.executable, HERE / "learning_side.py", json.dumps({**settings, **places})],
                check=False,
                stdout=subprocess.PIPE,
                stderr=None if arguments.verbose else subprocess.PIPE,
                env=environment,
                text=True,
            )
        if process.returncode:
            sys.exit(f"{process.stderr or ''}{training.side} failed")
        return {**json.loads(process.stdout), "load": os.getloadavg()[0]}

    def forget_compiled(self) -> None:
        """Remove the compiler's shared caches, which are large and not needed after the last measurement."""
        for folder in self._work.glob("compiled-*"):
            shutil.rmtree(folder, ignore_errors=True)


def code_digest() -> str:
    """Return a digest of all code and configuration that a training can depend on."""
    digest = hashlib.sha256()
    for root in _CODE:
        for path in sorted(path for path in root.rglob("*") if path.suffix in _CODE_SUFFIXES):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training of the grid."""

    optimizer: Optimizer
    num_steps: int
    loss: float
    """Loss on the dev share, nats."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """All cells of the grid, and the best one."""

    best: Cell
    cells: tuple[Cell, ...]

    def for_record(self) -> list[dict[str, Any]]:
        """Return every cell as plain data."""
        return [
            {"optimizer": str(cell.optimizer), "steps": cell.num_steps, "dev_loss": round(cell.loss, 4)}
            for cell in self.cells
        ]


def choose(trainings: Trainings, arguments: argparse.Namespace, *, budget_s: float) -> Choice:
    """Search the grid of each kind of optimizer, with as many steps per cell as the peer takes within the budget.

    The budget includes compilation. The learning rates are tried first, with the first beta2, extending the grid while
    the best rate is the outermost; then the other values of beta2 with the best rate.
    """
    cells: list[Cell] = []
    for preset in arguments.peer_optimizers:
        first = Training(
            side="tuned",
            optimizer=Optimizer(preset=preset),
            num_steps=min(_PACE_STEPS, arguments.steps),
            seed=UNREPORTED_SEED,
            share="dev",
        )
        steps = steps_within(budget_s, trainings.run(first))
        at = partial(_cell, trainings, preset, steps)
        cells += cells_of_kind(at, sorted(arguments.rates), arguments.beta2)
    return Choice(best=min(cells, key=lambda cell: cell.loss), cells=tuple(cells))


def _cell(trainings: Trainings, preset: str, steps: int, factor: float, beta2: float) -> Cell:
    own = section(OptimizerConfig, f"optimizer/{preset}")
    optimizer = Optimizer(preset=preset, lr=float(f"{factor * own.lr:.3g}"), beta2=beta2)
    training = Training(
        side="tuned", optimizer=optimizer, num_steps=steps, seed=UNREPORTED_SEED, share="dev", timed=False
    )
    return Cell(optimizer=optimizer, num_steps=steps, loss=trainings.run(training)["loss"])


def cells_of_kind(at: Callable[[float, float], Cell], rates: list[float], beta2: list[float]) -> list[Cell]:
    """Return the cells of one kind of optimizer.

    Args:
        at: Function that trains with a learning rate and a beta2, and returns the cell.
        rates: Learning rates, ascending.
        beta2: Values of beta2; every rate is tried with the first one.
    """
    by_rate = {rate: at(rate, beta2[0]) for rate in rates}

    def best() -> float:
        return min(by_rate, key=lambda rate: by_rate[rate].loss)

    for _ in range(_MOST_EXTENSIONS if len(rates) > 1 else 0):
        tried = sorted(by_rate)
        if best() == tried[0]:
            further = tried[0] ** 2 / tried[1]
        elif best() == tried[-1]:
            further = tried[-1] ** 2 / tried[-2]
        else:
            break
        by_rate[further] = at(further, beta2[0])
    return [*by_rate.values(), *(at(best(), value) for value in beta2[1:])]


def steps_within(budget_s: float, pace: dict[str, float]) -> int:
    """Return the number of steps that the peer takes within the budget after its startup time; at least one.

    >>> steps_within(130.0, {"startup_s": 30.0, "step_s": 0.5})
    200
    """
    return max(1, round((budget_s - pace["startup_s"]) / pace["step_s"]))
