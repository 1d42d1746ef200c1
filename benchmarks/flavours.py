"""Flavours of BERT, pretrained from scratch for equal minutes on the default corpus and vocabulary, then fine-tuned.

    python benchmarks/flavours.py --keep

Flavours: `bert` (the default preset), `roberta` (masked tokens alone), `albert` (shared layers, sentence order),
`electra` (replaced tokens), `distilled` (from a teacher of twice the layers, trained for twice the minutes). ALBERT and
ELECTRA are models of transformers, for which there is neither Muon nor an initial embedding; `--flavours` has
`bert_adamw` besides, the default preset with their optimizer. A flavour with other choices is one more arm:
`--flavours electra electra+optimizer.lr=1e-3+objective.detection_weight=5`. Choose among them on dev (`--split dev`).

The minutes of a training are processor time of one thread, from the start of its process to its end: imports and
compilation from an empty cache included. Two trainings run at a time; leave the machine alone meanwhile, because a
busy neighbour slows a core down. The steps that fit into them follow
from a short training of each flavour. The teacher is one for all seeds.

Held-out MLM loss: on the same full sentences with the same masks, for each flavour whose encoder has that head. Tasks:
those of the default preset, each with one fixed recipe (the middle of its search space) for all flavours, scored on
test. Every pair of flavours is compared with the noise of seeds and of rows (`foundation.verdicts`). The last line is
JSON. Finished trainings are kept in --work; an interrupted benchmark continues with the first missing one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import repository_source  # noqa: F401
from measurements import Measurement, parser_of, variant_of

from bertline.config import SECTIONS, PipelineConfig, pipeline_config
from bertline.foundation.files import read_json, write_json
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name
from bertline.foundation.verdicts import Measured, compared, measured
from bertline.kinds.registry import task_kind
from bertline.tasks.stored_rows import read_task_manifest

CONF = Path(__file__).parents[1] / "conf"
_SINGLE = ("examples=full_sentences",)
_SMALL_STEP = ("optimizer=adamw_short", "pretrain.initial_embeddings=null")
_TINY = (
    "model.embedding_size=128", "model.hidden_size=128", "model.num_hidden_layers=2", "model.num_attention_heads=2",
    "model.intermediate_size=512", "model.initializer_range=0.05",
)  # fmt: skip
TEACHER = "teacher"
FLAVOURS: Mapping[str, tuple[str, ...]] = {
    "bert": (),
    "bert_adamw": _SMALL_STEP,
    "roberta": ("objective=mlm", *_SINGLE),
    "albert": ("model=albert_base", *_TINY, "objective=mlm_sop", "examples=sentence_order", *_SMALL_STEP),
    "electra": (
        "model=electra_small", *_TINY, "objective=replaced_token", "objective.generator_width=0.5", *_SINGLE,
        *_SMALL_STEP, "optimizer.lr=1e-3",
    ),
    "distilled": ("objective=distilled", *_SINGLE, "pretrain.initial_embeddings=null"),
    TEACHER: ("objective=mlm", *_SINGLE, "model.num_hidden_layers=4"),
}  # fmt: skip
DEFAULT = ("bert", "roberta", "albert", "electra", "distilled")
LENGTH = 64


def composed(*choices: str) -> PipelineConfig:
    """Return the default configuration with choices."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    import bertline.cli.composition  # noqa: F401  # registers what conf/ resolves

    quick = [
        "pretrain.mask_predictions.every_steps=1000000", "runtime.num_workers=0",
        "pretrain.validate_every_steps=1000000", "pretrain.checkpoint_every_steps=1000000", "runtime.num_threads=1",
        "runtime.packing=off",  # each number of packed rows would be compiled, which takes a minute of the three
    ]  # fmt: skip
    with initialize_config_dir(str(CONF.resolve()), version_base=None):
        mapping: Any = OmegaConf.to_container(compose("config", [*quick, *choices]), resolve=True)
    return pipeline_config({name: mapping[name] for name in SECTIONS})


def choices_of(flavour: str, folder: Path, seed: int) -> tuple[str, ...]:
    """Return the choices of a flavour; those of `distilled` name the teacher."""
    teacher = folder / TEACHER / "0/run/result"
    name, *more = flavour.split("+")
    taught = [f"objective.teacher={teacher}"] if name == "distilled" else []
    return (*FLAVOURS[name], *more, *taught, f"pretrain.seed={seed}")


def make_data(folder: Path) -> None:
    """Make corpus, vocabulary, the examples of each flavour, and the rows of the tasks."""
    from bertline.corpus.build import build_corpus
    from bertline.examples.build import build_examples
    from bertline.foundation.engine import LocalEngine
    from bertline.kinds.build import build_task
    from bertline.tokenization.build import build_tokenizer

    config = composed()
    engine = LocalEngine(2)
    corpus: Any = config.corpus
    tokenizer: Any = config.tokenizer
    if not (folder / "corpus").exists():
        build_corpus(corpus, config.python_docs, folder / "corpus", engine=engine, work=folder / "shards")
    if not (folder / "tokenizer").exists():
        build_tokenizer(tokenizer, folder / "corpus", folder / "tokenizer", engine=engine, work=folder / "words")
    for flavour in FLAVOURS:
        if not examples_of(folder, flavour).exists():
            examples = composed(*choices_of(flavour, folder, 0)).examples
            out, work = examples_of(folder, flavour), folder / f"work-{flavour}"
            build_examples(examples, folder / "tokenizer", folder / "corpus", out, engine=engine, work=work)
    for name, task in config.tasks.items():
        if not (folder / "tasks" / name).exists():
            build_task(name, task, config.python_docs, folder / "tasks" / name, num_workers=2)


def examples_of(folder: Path, flavour: str) -> Path:
    """Return the examples that a flavour learns from."""
    kinds = [each.partition("=")[2] for each in FLAVOURS[flavour.split("+")[0]] if each.startswith("examples=")]
    return folder / f"examples-{kinds[0] if kinds else 'sentence_pairs'}"


class Clock(pl.Callback):
    """Writes the median processor time of a step of this process, in seconds; some steps compile for a new shape."""

    name, steps = "step_s.json", 60

    def __init__(self, folder: Path) -> None:
        self._path, self._times = folder / self.name, [time.process_time()]

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Look at the clock."""
        self._times.append(time.process_time())
        if module.finished_steps == self.steps:
            write_json(self._path, float(np.median(np.diff(self._times))))


def train(folder: Path, flavour: str, seed: int, steps: int, run: Path) -> None:
    """Pretrain a flavour for some steps, in this process."""
    from bertline.pretraining.job import PretrainJob
    from bertline.pretraining.run import run_pretraining

    phases = f"pretrain.phases=[{{steps: {steps}, max_length: {LENGTH}, global_batch_size: 64}}]"
    warmup = f"schedule.num_warmup_steps={max(1, steps // 15)}"
    config = composed(*choices_of(flavour, folder, seed), phases, warmup)
    job = PretrainJob(
        model=config.model, objective=config.objective, optimizer=config.optimizer, schedule=config.schedule,
        pretrain=config.pretrain, runtime=config.runtime, examples_folder=examples_of(folder, flavour),
        tokenizer_folder=folder / "tokenizer", run_folder=run,
    )  # fmt: skip
    run_pretraining(job, callbacks=[Clock(run)] if run.name == "speed" else ())


def score(folder: Path, flavour: str, seed: int, split: str, tasks: Sequence[str]) -> None:
    """Measure the held-out loss of a trained encoder, and fine-tune it on each task; write `scores_SPLIT.json`."""
    from bertline.encoders.loading import load_model
    from bertline.finetuning.finetune import fine_tune
    from bertline.finetuning.job import FineTuningJob, TaskSplit
    from bertline.modeling.checkpoint import Checkpoint
    from bertline.pretraining.module import PreTrainingLosses
    from bertline.pretraining.objectives.base import Mlm
    from bertline.pretraining.plan import Plan
    from bertline.pretraining.probes import ValidationProbe
    from bertline.sweep.space import with_params
    from bertline.tokenization.tokenizer import Tokenizer
    from bertline.training.devices import resolve_machine

    place = folder / flavour / str(seed)
    encoder, config = place / "run/result", composed()
    machine, tokenizer = resolve_machine(config.runtime, "auto"), Tokenizer.load(encoder)
    found: dict[str, Any] = {}
    if Checkpoint.open(encoder).has_mlm_head:
        model: Any = load_model(encoder, "mlm")
        probe = ValidationProbe(
            PreTrainingLosses(model, Mlm(kind="mlm")), examples_of(folder, "roberta"), Plan.of(config.pretrain),
            machine=machine, every_steps=1, max_sequences=10_000,
        )  # fmt: skip
        found["mlm_loss"] = probe.probe(1)["val/mlm_loss"]
    for name in tasks:
        task, rows_folder = config.tasks[name], folder / "tasks" / name
        kind = task_kind(task, read_task_manifest(rows_folder)["labels"])
        spaces: Mapping[str, Any] = task.space
        middle = {key: space.values[len(space.values) // 2] for key, space in spaces.items()}
        recipe: dict[str, Any] = {**task.fine_tuning, **middle}
        whole = {key: int(value) if key in ("batch_size", "num_epochs") else value for key, value in recipe.items()}
        splits: dict[str, TaskSplit] = {}
        for name_of_split, count in (("train", task.num_train_rows), ("dev", None), ("test", None)):
            rows = kind.read(rows_folder, name_of_split).first(count)
            splits[name_of_split] = TaskSplit(rows=rows, encoded=kind.encode(rows, tokenizer))
        result = fine_tune(
            FineTuningJob(
                kind=kind, config=with_params(config.sweep.fine_tuning, whole),
                encoder="pretrained", encoder_folder=encoder, train=splits["train"], dev=splits["dev"], seed=seed,
                machine=machine, runtime=config.runtime,
            )
        )  # fmt: skip
        scored = splits[split]
        predictions = kind.predict(result.model, scored.encoded, machine)
        statistics = kind.statistics(scored.rows, predictions, result.dev.calibration)
        np.savez(place / f"{name}_{split}.npz", statistics=statistics, sources=np.array(scored.rows.sources()))
        found[name] = kind.scores(statistics)[task.metric]
    write_json(place / f"scores_{split}.json", found)


class Benchmark:
    """The trainings in their folders, each in a process of its own."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.folder, self.minutes = arguments.work.resolve(), arguments.minutes
        self.seeds, self.workers, self.shown = range(arguments.seeds), arguments.workers, tuple(arguments.flavours)
        self.split, self.tasks = arguments.split, tuple(arguments.tasks or composed().tasks)

    def run(self) -> dict[str, Any]:
        """Make what is missing and return the figures."""
        self._child("data")
        steps = {TEACHER: self._steps(TEACHER, 2 * self.minutes)}
        self._all([("train", TEACHER, 0, steps[TEACHER])])
        with ThreadPoolExecutor(self.workers) as pool:
            steps |= dict(
                zip(self.shown, pool.map(lambda name: self._steps(name, self.minutes), self.shown), strict=True)
            )
        self._all([("train", name, seed, steps[name]) for seed in self.seeds for name in self.shown])
        self._all([("score", TEACHER, 0, 0), *(("score", name, seed, 0) for seed in self.seeds for name in self.shown)])
        return self._figures(steps)

    def _steps(self, flavour: str, minutes: float) -> int:
        """Return the number of steps whose training takes so many minutes of processor time."""
        path, run = self.folder / flavour / "speed.json", "speed"
        if not path.exists():
            all_s = self._child("train", flavour, 0, Clock.steps, run)
            step_s = read_json(self.folder / flavour / "0" / run / Clock.name)
            write_json(path, {"step_s": step_s, "start_s": all_s - Clock.steps * step_s})
        speed = read_json(path)
        return int((60 * minutes - speed["start_s"]) / speed["step_s"])

    def _all(self, parts: Sequence[tuple[str, str, int, int]]) -> None:
        done = {"train": "run/result/manifest.json", "score": f"scores_{self.split}.json"}
        missing = [part for part in parts if not (self.folder / part[1] / str(part[2]) / done[part[0]]).exists()]
        with ThreadPoolExecutor(self.workers) as pool:
            took = pool.map(lambda part: self._child(*part), missing)
            for (what, flavour, seed, _), seconds in zip(missing, took, strict=True):
                print(f"{what} {flavour} {seed}: {seconds:.0f} s of processor time", flush=True)

    def _child(self, what: str, flavour: str = "bert", seed: int = 0, steps: int = 0, run: str = "run") -> float:
        """Do a part in a process of its own; return its processor time in seconds, with that of its children."""
        place = self.folder / flavour / str(seed)
        place.mkdir(parents=True, exist_ok=True)
        cache, log_path = place / f"{run}-compiled", place / f"{what}.log"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        part = [what, flavour, str(seed), str(steps), run]
        options = ["--work", str(self.folder), "--split", self.split, "--tasks", *self.tasks]
        command = [sys.executable, __file__, *options, "--part", *part]
        with log_path.open("a") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        shutil.rmtree(cache, ignore_errors=True)
        if process.returncode:
            sys.exit(f"{' '.join(part)} failed; see {log_path}")
        seconds = usage.ru_utime + usage.ru_stime
        if what == "train" and run == "run":
            write_json(place / "seconds.json", seconds)
        return seconds

    def _figures(self, steps: Mapping[str, int]) -> dict[str, Any]:
        flavours: dict[str, Any] = {}
        for name in (*self.shown, TEACHER):
            places = [self.folder / name / str(seed) for seed in (self.seeds if name != TEACHER else [0])]
            scores = [read_json(place / f"scores_{self.split}.json") for place in places]
            seconds = [read_json(place / "seconds.json") for place in places]
            flavours[name] = {
                "steps": steps[name],
                "processor_s": round(float(np.mean(seconds)), 1),
                **{key: summary([each[key] for each in scores]) for key in scores[0]},
            }
        systems = {
            task: self._measured(task, section) for task, section in composed().tasks.items() if task in self.tasks
        }
        verdicts = {
            f"{first} - {second}": {task: difference(each[first], each[second]) for task, each in systems.items()}
            for first, second in combinations(self.shown, 2)
        }
        return {
            "minutes": self.minutes,
            "split": self.split,
            "seeds": len(self.seeds),
            "flavours": flavours,
            "verdicts": verdicts,
        }

    def _measured(self, task: str, section: Any) -> dict[str, Measured]:
        """Return the test scores of each flavour on a task, with the contributions of rows to them."""
        labels = read_task_manifest(self.folder / "tasks" / task)["labels"]
        kind, metric = task_kind(section, labels), section.metric
        systems = {}
        for name in self.shown:
            files = [np.load(self.folder / name / str(seed) / f"{task}_{self.split}.npz") for seed in self.seeds]
            statistics, sources = [file["statistics"] for file in files], files[0]["sources"].tolist()
            systems[name] = measured(statistics, sources, lambda rows: kind.scores(rows)[metric], repeatable=False)
        return systems


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean and standard deviation; of one value the latter is None."""
    std = round(float(np.std(values, ddof=1)), 4) if len(values) > 1 else None
    return {"mean": round(float(np.mean(values)), 4), "std": std}


def difference(first: Measured, second: Measured) -> dict[str, Any]:
    """Return the difference of two flavours, its p-value and the verdict."""
    found = compared(first, second).to_json()
    return {key: found[key] for key in ("difference", "p_value", "verdict") if key in found}


def arm(text: str) -> str:
    """Return the name of a flavour, with other choices or none, if there is such a flavour."""
    if text.split("+")[0] not in set(FLAVOURS) - {TEACHER}:
        raise argparse.ArgumentTypeError(f"no flavour is called {text!r}; there are {', '.join(sorted(FLAVOURS))}")
    return text


def main() -> None:
    """Run the benchmark, or one part of it in a child process."""
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="of processor time for each training")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--flavours", nargs="+", default=list(DEFAULT), type=arm)
    parser.add_argument("--split", choices=["dev", "test"], default="test", help="that scores are of")
    parser.add_argument("--tasks", nargs="+", help="tasks to score; all without it")
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time, one thread each")
    parser.add_argument("--work", type=Path, default=Path("runs/flavours"), help="folder of what was trained")
    parser.add_argument("--part", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        what, flavour, seed, steps, run = arguments.part
        folder = arguments.work
        if what == "data":
            make_data(folder)
        elif what == "score":
            score(folder, flavour, int(seed), arguments.split, arguments.tasks or [*composed().tasks])
        else:
            train(folder, flavour, int(seed), int(steps), folder / flavour / seed / run)
        return
    figures = {"device": processor_name(), **Benchmark(arguments).run()}
    if arguments.keep:
        record = Measurement(
            benchmark="flavours", model="tiny", seq_len=LENGTH, figures=figures,
            variant=variant_of(parser, arguments, ["minutes", "seeds", "split"]),
            versions=versions_of("torch", "transformers", "pytorch-lightning", "tokenizers"), arguments=arguments,
            not_recorded=("work", "part"),
        )  # fmt: skip
        record.write(Path(arguments.keep), commit=arguments.commit)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
