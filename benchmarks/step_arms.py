"""One side of pretraining_step.py: a process that trains and takes timed rounds on request.

Every side has its own process for the whole benchmark, so that sides do not share allocator, threads or compiled code;
at any time all but one of them are idle. The settings on standard input start the warm-up, and each further line starts
a round; a line of JSON on standard output reports the end of each, with its measurements.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
import torch
from bare_configuration import NEVER, UNWATCHED, build, section
from measurements import facts_of

from bertline.modeling.config import ModelConfig
from bertline.training.config import RuntimeConfig, ScheduleConfig
from bertline.training.devices import Machine, resolve_machine
from bertline.training.matmul_rate import hot_matmul_rate
from bertline.training.optimizers import OptimizerConfig

_WARMUP_STEPS = 3
"""Steps before the first round; the first ones compile."""
_UNTIMED_STEPS = 2
"""Untimed steps at the start of each round, because the device was idle."""
_BATCHES_AHEAD = 4
"""Batches prepared ahead by each loader process, on both sides (`pretraining.data`, hugging_face_peer.py)."""


@dataclass(frozen=True, kw_only=True)
class ArmSettings:
    """Settings of one side."""

    arm: str
    """`bertline`, `plain`, `tuned` or `matmul`."""
    model: dict[str, Any]
    vocab_size: int
    seq_len: int
    mean_length: float
    """Mean number of tokens of a sequence; `seq_len` if all are full."""
    batch_size: int
    """Sequences per optimizer step."""
    peer_accumulation: int
    """Gradient accumulation steps of `plain` and `tuned`."""
    steps: int
    """Timed steps per round."""
    rounds: int
    precision: str
    workers: int
    device: str
    threads: int
    folder: str
    """Folder with `examples/` and `tokenizer/`."""
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Changed keys of bertline's configuration, by section."""

    @property
    def num_steps(self) -> int:
        """Number of all steps: warm-up, untimed and timed."""
        return _WARMUP_STEPS + self.rounds * (self.num_untimed_steps + self.steps)

    @property
    def num_untimed_steps(self) -> int:
        """Number of untimed steps per round: those with batches prepared while the side was idle must not count."""
        return _UNTIMED_STEPS + (0 if self.arm == "plain" else _BATCHES_AHEAD * self.workers)


class RoundsOver(BaseException):
    """Raised if no further round is requested; a BaseException, so that no `except Exception` catches it."""


class Port:
    """Connection to the benchmark. Output printed by libraries goes to standard error instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def tell(self, **content: Any) -> None:
        """Write one line of JSON."""
        print(json.dumps(content), file=self._out, flush=True)

    def wait(self) -> str:
        """Wait for the next line and return it.

        Raises:
            RoundsOver: The input has ended.
        """
        line = sys.stdin.readline()
        if not line:
            raise RoundsOver
        return line


class Gate:
    """Counts steps, pauses training between rounds, and times the rounds."""

    def __init__(self, port: Port, settings: ArmSettings, machine: Machine) -> None:
        from bertline.pretraining.callbacks import peak_memory_bytes

        self._port = port
        self._settings = settings
        self._machine = machine
        self._peak_memory_bytes: Callable[[], int] = lambda: peak_memory_bytes(machine.device)
        self._waited_s = 0.0
        self._step_ended = time.perf_counter()
        self._rounds = self._take_rounds()
        self._left = next(self._rounds)

    def before_step(self) -> None:
        """Record that a batch has arrived."""
        self._waited_s += time.perf_counter() - self._step_ended

    def after_step(self) -> None:
        """Count a step, which has been computed or at least queued on the device."""
        self._left -= 1
        if not self._left:
            self._left = next(self._rounds)
        self._step_ended = time.perf_counter()

    def _take_rounds(self) -> Iterator[int]:
        """Yield the number of steps to take next; in between, time the rounds and report them."""
        settings = self._settings
        yield _WARMUP_STEPS
        self._synchronize()
        self._port.tell(**facts_of(self._machine))
        while True:
            self._stand_still()
            yield settings.num_untimed_steps
            self._synchronize()
            self._waited_s, started = 0.0, time.perf_counter()
            yield settings.steps
            self._synchronize()
            seconds = time.perf_counter() - started
            self._port.tell(
                tokens_per_s=settings.steps * settings.batch_size * settings.mean_length / seconds,
                step_s=seconds / settings.steps,
                data_wait_fraction=self._waited_s / seconds,
                peak_memory_bytes=self._peak_memory_bytes(),
            )

    def _stand_still(self) -> None:
        if self._machine.device.type == "cuda":
            torch.cuda.empty_cache()  # leaves the memory to the other sides
        self._port.wait()

    def _synchronize(self) -> None:
        if self._machine.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    """Run the side named by the first argument."""
    port = Port()
    try:
        import_side(sys.argv[1])
        settings = ArmSettings(arm=sys.argv[1], **json.loads(port.wait()))
        runtime = runtime_of(settings)
        machine = resolve_machine(runtime, precision_of(settings))
        match settings.arm:
            case "matmul":
                multiply_matrices(port, machine)
            case "bertline":
                train_bertline(settings, runtime, Gate(port, settings, machine))
            case _:
                train_peer(settings, machine, Gate(port, settings, machine))
    except RoundsOver:
        os._exit(0)  # nothing has to be saved, and an orderly shutdown of compilers and loaders takes seconds
    except torch.OutOfMemoryError as error:
        port.tell(failed=f"out of memory: {str(error).splitlines()[0]}")
    except (Exception, SystemExit) as error:
        port.tell(failed=f"{type(error).__name__}: {error}")
        raise


def import_side(arm: str) -> None:
    """Import what the side needs. All sides do this at the same time; the rest of their startup is sequential."""
    if arm == "bertline":
        import bertline.pretraining.run  # noqa: F401
    elif arm != "matmul":
        import hugging_face_peer  # noqa: F401


def train_bertline(settings: ArmSettings, runtime: RuntimeConfig, gate: Gate) -> None:
    """Train with the whole engine, as the pretrain stage runs it."""
    import pytorch_lightning as pl

    from bertline.pretraining.config import PretrainConfig
    from bertline.pretraining.job import PretrainJob
    from bertline.pretraining.objectives import ObjectiveConfig
    from bertline.pretraining.run import run_pretraining

    class StepGate(pl.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            gate.before_step()

        def on_train_batch_end(self, *_: Any) -> None:
            gate.after_step()

    folder, changes = Path(settings.folder), settings.changes
    optimizer, schedule = changes.get("optimizer", {}), changes.get("schedule", {})
    pretrain = {
        "phases": [{"steps": NEVER, "max_length": settings.seq_len, "global_batch_size": settings.batch_size}],
        "precision": settings.precision,
        **UNWATCHED,
    }
    job = PretrainJob(
        model=build(ModelConfig, settings.model),
        objective=section(ObjectiveConfig, "objective/mlm_nsp", **changes.get("objective", {})),
        optimizer=section(OptimizerConfig, f"optimizer/{optimizer.get('kind', 'adamw')}", **optimizer),
        schedule=section(ScheduleConfig, f"schedule/{schedule.get('kind', 'linear')}", **schedule),
        pretrain=section(PretrainConfig, "pretrain/default", **{**pretrain, **changes.get("pretrain", {})}),
        runtime=runtime,
        examples_folder=folder / "examples",
        tokenizer_folder=folder / "tokenizer",
        run_folder=folder / "run",
    )
    run_pretraining(job, callbacks=[StepGate()])


def train_peer(settings: ArmSettings, machine: Machine, gate: Gate) -> None:
    """Train with the Hugging Face Trainer, `plain` or `tuned`."""
    import hugging_face_peer
    import transformers

    from bertline.examples.store import ExampleStore

    class StepGate(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            gate.before_step()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            gate.after_step()

    folder, num_steps = Path(settings.folder), settings.num_steps + 1  # one more, so that training outlasts the rounds
    job = hugging_face_peer.PeerJob(
        kind="tuned" if settings.arm == "tuned" else "plain",
        model=build(ModelConfig, settings.model),
        store=ExampleStore.open(folder / "examples", "train", settings.seq_len),
        tokenizer_folder=folder / "tokenizer",
        full_length=settings.mean_length == settings.seq_len,
        sequences_an_epoch=num_steps * settings.batch_size,
        machine=machine,
        workers=settings.workers,
        batch_size=settings.batch_size,
        accumulation=settings.peer_accumulation,
        num_steps=num_steps,
        out=folder / f"run-{settings.arm}",
    )
    hugging_face_peer.train_peer(job, [StepGate()])


def multiply_matrices(port: Port, machine: Machine) -> None:
    """Measure the rate of a large matrix product, the reference for utilisation."""
    port.tell(**facts_of(machine))
    while True:
        port.wait()
        port.tell(flops_per_s=hot_matmul_rate(machine.device, machine.precision))


def runtime_of(settings: ArmSettings) -> RuntimeConfig:
    """Return the runtime section with the command line's changes."""
    values = {"device": settings.device, "num_threads": settings.threads, "num_workers": settings.workers}
    return section(RuntimeConfig, "runtime/default", **{**values, **settings.changes.get("runtime", {})})


def precision_of(settings: ArmSettings) -> Any:
    """Return the precision of a side; --precision applies only to bertline and the matrix product."""
    return {"plain": "fp32", "tuned": "auto"}.get(settings.arm, settings.precision)


if __name__ == "__main__":
    main()
