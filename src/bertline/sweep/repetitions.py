"""The second half of a sweep: the chosen configuration over seeds, and at other training sizes.

Nothing is chosen any more, so this is where the test rows are read: once for each finished classifier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertline.finetuning.finetune import fine_tune, predict_probabilities
from bertline.foundation.files import folder_written_atomically, read_json, write_json
from bertline.foundation.progress import say
from bertline.foundation.seeds import seed_for
from bertline.modeling.huggingface import save_model
from bertline.sweep.events import EventsLog
from bertline.sweep.job import Arm, Bench, SweepJob
from bertline.sweep.space import Params
from bertline.sweep.workers import Workers
from bertline.tasks.metrics import score
from bertline.tokenization.storage import copy_tokenizer

_OUTCOME = "outcome.json"
_PROBABILITIES = "test_probabilities.npy"


@dataclass(frozen=True, slots=True)
class Repetition:
    """One run of a chosen configuration."""

    arm: Arm
    params: Params
    kind: Literal["seed", "label_efficiency"]
    number: int
    """Unique for its arm and kind."""
    seed: int
    """Counts from 0 for each training size."""
    num_train_rows: int | None

    @property
    def keeps_model(self) -> bool:
        """Whether the classifier may become the best one, and so is kept."""
        return self.arm == "encoder" and self.kind == "seed"

    def folder(self, job: SweepJob) -> Path:
        """Where the outcome goes."""
        return job.run_folder / "seeds" / f"{self.arm}-{self.kind}-{self.number}"


def repetitions_of(job: SweepJob, chosen: dict[Arm, Params]) -> list[Repetition]:
    """All repetitions: the main training size over `num_seeds`, the others over `num_label_efficiency_seeds`."""
    task, sweep = job.task, job.sweep
    others = sorted(set(task.label_efficiency_rows) - {task.num_train_rows})
    planned: list[Repetition] = []
    for arm, params in chosen.items():
        planned += [Repetition(arm, params, "seed", seed, seed, task.num_train_rows) for seed in range(sweep.num_seeds)]
        sizes = [(rows, seed) for rows in others for seed in range(sweep.num_label_efficiency_seeds)]
        planned += [
            Repetition(arm, params, "label_efficiency", number, seed, rows) for number, (rows, seed) in enumerate(sizes)
        ]
    return planned


def run_repetitions(job: SweepJob, repetitions: list[Repetition], workers: Workers) -> None:
    """Run the repetitions that have no outcome yet."""
    _sync_events(job, repetitions)
    left = [repetition for repetition in repetitions if not (repetition.folder(job) / _OUTCOME).exists()]
    # The longest first, so that no worker is left alone with it at the end.
    left.sort(key=lambda repetition: -(repetition.num_train_rows or 0))
    for message in workers.map_unordered(_repeat, left):
        say(f"{job.task_name}, {message}")
        _sync_events(job, repetitions)


def outcome_of(job: SweepJob, repetition: Repetition) -> dict[str, Any]:
    """What a repetition gave: `dev`, `test`, `curve`, `time_s`."""
    return read_json(repetition.folder(job) / _OUTCOME)


def test_probabilities_of(job: SweepJob, repetition: Repetition) -> NDArray[np.float32]:
    """Probabilities [test rows, labels]."""
    return np.load(repetition.folder(job) / _PROBABILITIES, allow_pickle=False)


def _repeat(bench: Bench, repetition: Repetition) -> str:
    job = bench.job
    started = time.monotonic()
    run = bench.run(
        repetition.arm,
        repetition.params,
        num_train_rows=repetition.num_train_rows,
        seed=seed_for(job.sweep.seed, "repetition", repetition.seed),
    )
    result = fine_tune(run)
    test = bench.encoded("test")
    probabilities = predict_probabilities(result.model, test, bench.machine)
    test_score = score(job.task.metric, test.labels, probabilities.argmax(axis=1), len(bench.labels))
    time_s = time.monotonic() - started
    with folder_written_atomically(repetition.folder(job)) as folder:
        np.save(folder / _PROBABILITIES, probabilities)
        if repetition.keeps_model:
            save_model(result.model, folder, id2label=dict(enumerate(bench.labels)))
            copy_tokenizer(job.pretrain_folder, folder, max_length=job.task.max_length)
        outcome = {
            "dev": result.dev_score,
            "test": test_score,
            "curve": [[epoch, value] for epoch, value in enumerate(result.dev_scores, start=1)],
            "time_s": time_s,
        }
        write_json(folder / _OUTCOME, outcome)
    size = f", {repetition.num_train_rows} rows" if repetition.kind == "label_efficiency" else ""
    return f"{repetition.arm}{size}, seed {repetition.seed}: {test_score:.3f} on test in {time_s:.0f} s"


def _sync_events(job: SweepJob, repetitions: list[Repetition]) -> None:
    EventsLog(job.run_folder / "events.jsonl").add_missing(_events(job, repetitions))


def _events(job: SweepJob, repetitions: list[Repetition]) -> Iterator[dict[str, Any]]:
    metric = job.task.metric
    for repetition in repetitions:
        if not (repetition.folder(job) / _OUTCOME).exists():
            continue
        outcome = outcome_of(job, repetition)
        yield {
            "arm": repetition.arm,
            "kind": repetition.kind,
            "number": repetition.number,
            "state": "COMPLETE",
            "params": {**repetition.params, "seed": repetition.seed, "num_train_rows": repetition.num_train_rows},
            "metrics": {f"dev/{metric}": outcome["dev"], f"test/{metric}": outcome["test"]},
            "curve": outcome["curve"],
            "time_s": outcome["time_s"],
        }
