"""Score an encoder on public tasks with the fixed recipes below: one fine-tuning per seed, nothing tuned.

    python benchmarks/public_tasks.py --encoder /path/to/encoder --data /path/to/tasks
    python benchmarks/public_tasks.py --encoder FOLDER --data FOLDER --tasks trec wnut17 --seeds 0 1 2
    python benchmarks/public_tasks.py --encoder FOLDER --data FOLDER --limit 64     # does every path run? kept nowhere

The data folder contains the sets under their usual names (SST-2 and STS-B, directly or in glue/; trec, wnut17,
squad_share or squad, cranfield), which are read as in conf/task/NAME.yaml. Rows, fine-tuning, predictions and scores
are the library's own, as the stages task_data and sweep use them. `stsb` and `cranfield` are not trained: the encoder
is scored as it is. Baselines (`squad_first_sentence`, `cranfield_bm25`) do not use the encoder. Each result is printed
and, without --limit, appended with versions and commit to benchmarks/results/public_tasks.jsonl. The last line is JSON:
the means over seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import repository_source  # noqa: F401
from bare_configuration import section
from hydra import compose, initialize_config_dir
from numpy.typing import NDArray
from omegaconf import OmegaConf
from records import current_commit

from bertline.baselines.base import BaselineInputs
from bertline.demo.config import PythonDocsConfig
from bertline.finetuning.config import FineTuningConfig
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.job import FineTuningJob, TaskSplit
from bertline.foundation.errors import BertlineError
from bertline.foundation.files import sha256_of_file
from bertline.foundation.manifests import versions_of
from bertline.foundation.validation import to_mapping, validate
from bertline.kinds.base import TaskKind
from bertline.kinds.build import build_task
from bertline.kinds.registry import TaskConfig, task_kind
from bertline.tasks.stored_rows import read_task_manifest
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.config import RuntimeConfig
from bertline.training.devices import Machine, resolve_machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "public_tasks.jsonl"


def fine_tuning_of(preset: str) -> dict[str, Any]:
    """Return the recipe of fine-tuning of a preset of `conf/sweep`: what all presets share, and what differs."""
    presets: Any = [OmegaConf.load(ROOT / "conf" / "sweep" / name) for name in ("base/recipe.yaml", f"{preset}.yaml")]
    recipe: Any = OmegaConf.to_container(OmegaConf.merge(*(each.get("fine_tuning", {}) for each in presets)))
    return recipe


# Values that apply unless a recipe below changes them (Devlin et al., arXiv 1810.04805, A.3; bias correction: Zhang et
# al., arXiv 2006.05987). The learning rates are for encoders of about 6 layers with hidden size 384; encoders of BERT's
# size need 2e-5 to 5e-5.
COMMON: dict[str, Any] = {**fine_tuning_of("default"), "learning_rate": 1e-4}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Recipe for measuring one figure."""

    task: str
    """Name of a file in conf/task, without `.yaml`."""
    places: tuple[str, ...]
    """Possible paths of the set below the data folder; the first that exists is used."""
    splits: tuple[str, ...] = ("dev", "test")
    fine_tuning: Mapping[str, Any] = field(default_factory=dict)
    """Changes to COMMON; with 0 epochs the encoder is scored as it is."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the task's configuration."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the source in the task's configuration."""
    baseline: str | None = None
    """Name of a baseline to score instead of the encoder."""
    together: bool = False
    """Whether to score the rows of all splits as one set, `all`; valid because nothing is trained."""


_SQUAD = Recipe(
    task="squad",
    places=("squad_share/squad-v1.1-dev-32articles.json", "squad"),
    fine_tuning={"learning_rate": 3e-4, "batch_size": 16, "num_epochs": 1},
    changes={"test_fraction": 0.2, "max_length": 256, "window_overlap": 64, "max_question_length": 48},
)
_ONE_FILE: dict[str, Any] = {"train_file": None, "dev_file": None, "test_file": None}
_CRANFIELD = Recipe(
    task="cranfield",
    places=("cranfield",),
    splits=("train", "dev", "test"),
    together=True,
    fine_tuning={"num_epochs": 0},
    changes={"hard_negatives": "none"},
)
RECIPES = {
    "stsb": Recipe(
        task="stsb",
        places=("glue/STS-B", "STS-B", "stsb"),
        fine_tuning={"num_epochs": 0},
        changes={"head": "cosine", "pooling": "mean"},
    ),
    "cranfield": _CRANFIELD,
    "cranfield_bm25": Recipe(**{**asdict(_CRANFIELD), "baseline": "bm25"}),
    "trec": Recipe(
        task="trec", places=("trec",), fine_tuning={"learning_rate": 2e-4, "batch_size": 16, "num_epochs": 6}
    ),
    "wnut17": Recipe(
        task="wnut17", places=("wnut17",), fine_tuning={"learning_rate": 2e-4, "batch_size": 16, "num_epochs": 5}
    ),
    "squad": _SQUAD,
    "squad_first_sentence": Recipe(**{**asdict(_SQUAD), "baseline": "first_sentence"}),
    "sst2": Recipe(task="sst2", places=("glue/SST-2", "SST-2", "sst2"), fine_tuning={"num_epochs": 1}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A task as a section of a configuration, so that it is validated as in the pipeline."""

    task: TaskConfig


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Command-line arguments and settings that all figures share."""

    encoder: Path
    data: Path
    limit: int | None
    machine: Machine
    runtime: RuntimeConfig


class Measured:
    """Task of one figure: rows as the task_data stage makes them, encoded with the encoder's tokenizer."""

    def __init__(self, name: str, recipe: Recipe, asked: Asked, folder: Path) -> None:
        self.recipe, self._asked, self._folder = recipe, asked, folder
        config = task_config(recipe, asked.data)
        build_task(name, config, python_docs(), folder)
        self.kind: TaskKind[Any, Any, Any] = task_kind(config, read_task_manifest(folder)["labels"])
        self._tokenizer = Tokenizer.load(asked.encoder)

    def rows(self, split: str) -> Any:
        """Return the rows of a split, with --limit only the first ones."""
        return self.kind.read(self._folder, split).first(self._asked.limit)

    def split(self, name: str) -> TaskSplit:
        """Return the rows of a split with their tokens."""
        rows = self.rows(name)
        return TaskSplit(rows=rows, encoded=self.kind.encode(rows, self._tokenizer))

    def of_baseline(self) -> dict[str, dict[str, float]]:
        """Return the scores of the recipe's baseline by split."""
        rows = {split: self.rows(split) for split in ("train", "dev", *self.recipe.splits)}
        scored = {split: rows[split] for split in self.recipe.splits if split != "dev"}
        given = BaselineInputs(kind=self.kind, train=rows["train"], dev=rows["dev"], tests=scored)
        found = next(one for one in self.kind.baselines(given) if one.name == self.recipe.baseline)
        return self._scores(
            {split: self.kind.statistics(rows[split], found.predictions[split], {}) for split in self.recipe.splits}
        )

    def of_encoder(self, seed: int) -> dict[str, dict[str, float]]:
        """Return the encoder's scores by split, after training if the recipe has epochs."""
        splits = {name: self.split(name) for name in dict.fromkeys(("train", "dev", *self.recipe.splits))}
        result = fine_tune(
            FineTuningJob(
                kind=self.kind,
                config=validate(FineTuningConfig, {**COMMON, **self.recipe.fine_tuning}),
                encoder="pretrained",
                encoder_folder=self._asked.encoder,
                train=splits["train"],
                dev=splits["dev"],
                seed=seed,
                machine=self._asked.machine,
                runtime=self._asked.runtime,
            )
        )
        statistics_of = {}
        for name in self.recipe.splits:
            predictions = self.kind.predict(result.model, splits[name].encoded, self._asked.machine)
            statistics_of[name] = self.kind.statistics(splits[name].rows, predictions, result.calibration)
        return self._scores(statistics_of)

    def _scores(self, statistics_of: Mapping[str, NDArray[np.float64]]) -> dict[str, dict[str, float]]:
        if self.recipe.together:
            statistics_of = {"all": np.concatenate(list(statistics_of.values()))}
        return {split: self.kind.scores(one) for split, one in statistics_of.items()}


def main() -> None:
    """Measure, print and append the results."""
    arguments = _arguments()
    runtime = runtime_config(arguments.device, arguments.threads)
    asked = Asked(
        encoder=Path(arguments.encoder).expanduser().resolve(),
        data=Path(arguments.data).expanduser().resolve(),
        limit=arguments.limit,
        machine=resolve_machine(runtime, arguments.precision),
        runtime=runtime,
    )
    about = facts(asked, arguments.name, arguments.precision)
    results: list[dict[str, Any]] = []
    for name in arguments.tasks:
        recipe = RECIPES[name]
        with tempfile.TemporaryDirectory() as folder:
            measured = Measured(name, recipe, asked, Path(folder) / name)
            # Without training, the result is the same for every seed.
            once = recipe.baseline is not None or recipe.fine_tuning.get("num_epochs") == 0
            for seed in arguments.seeds[:1] if once else arguments.seeds:
                result = one_result(name, measured, seed)
                results.append(result)
                print(progress_line(result), flush=True)
                if arguments.limit is None:
                    append(arguments.results, {**about, **result})
    print(json.dumps({"limit": arguments.limit, **summary(results)}))


def one_result(name: str, measured: Measured, seed: int) -> dict[str, Any]:
    """Return the result of a figure for one seed."""
    recipe, started = measured.recipe, time.perf_counter()
    scores = measured.of_baseline() if recipe.baseline else measured.of_encoder(seed)
    source = {key: value for key, value in to_mapping(measured.kind.config)["source"].items() if key != "path"}
    task = {**to_mapping(measured.kind.config), "source": source}
    return {
        "figure": name,
        "seed": seed,
        "scores": scores,
        "metric": measured.kind.config.metric,
        "minutes": round((time.perf_counter() - started) / 60, 2),
        "rows": {split: len(measured.rows(split)) for split in ("train", *recipe.splits)},
        "baseline": recipe.baseline,
        "fine_tuning": None if recipe.baseline else {**COMMON, **recipe.fine_tuning},
        "task": task,
    }


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean over seeds of each figure's own metric, by split."""
    found: dict[str, dict[str, list[float]]] = {}
    for result in results:
        for split, scores in result["scores"].items():
            found.setdefault(result["figure"], {}).setdefault(split, []).append(scores[result["metric"]])
    return {
        name: {split: round(statistics.fmean(values), 4) for split, values in of_figure.items()}
        for name, of_figure in found.items()
    }


def progress_line(result: Mapping[str, Any]) -> str:
    """Return a result as one line of text."""
    metric = result["metric"]
    said = ", ".join(f"{split} {metric} {scores[metric]:.4f}" for split, scores in result["scores"].items())
    return f"{result['figure']}, seed {result['seed']}: {said} ({result['minutes']:.1f} min)"


def task_config(recipe: Recipe, data: Path) -> TaskConfig:
    """Return the task's configuration with the recipe's changes and the path of the data."""
    place = next((data / name for name in recipe.places if (data / name).exists()), None)
    if place is None:
        raise BertlineError(f"{data} has none of {', '.join(recipe.places)}, which {recipe.task} reads")
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        content: Any = OmegaConf.to_container(compose(f"task/{recipe.task}").task)
    one_file = _ONE_FILE if place.is_file() else {}
    source = {**content["source"], **one_file, **recipe.source, "path": str(place)}
    return validate(Holder, {"task": {**content, **recipe.changes, "source": source}}).task


def python_docs() -> PythonDocsConfig:
    """Return the section that `build_task` requires and these tasks do not use."""
    content: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "python_docs" / "default.yaml"))
    return validate(PythonDocsConfig, content)


def runtime_config(device: str, num_threads: int | None) -> RuntimeConfig:
    """Return the settings of one device, as a sweep's worker uses it."""
    changes = {"device": device, "num_threads": num_threads, "compile": "off", "num_workers": 0, "sweep_workers": 1}
    return section(RuntimeConfig, "runtime/default", **changes)


def facts(asked: Asked, name: str | None, precision: str) -> dict[str, Any]:
    """Return what makes a result traceable, without the path of the encoder's folder, which is private."""
    weights = next((path for path in sorted(asked.encoder.glob("*.safetensors"))), None)
    return {
        "encoder": name or asked.encoder.name,
        "weights_sha256": sha256_of_file(weights) if weights else None,
        "device": asked.machine.device.type,
        "precision": precision,
        "commit": current_commit(),
        "versions": {**versions_of("bertline", "torch", "tokenizers", "numpy"), "python": sys.version.split()[0]},
    }


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Append a line to the results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(record, ensure_ascii=False) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="the folder of any BERT encoder with its tokenizer")
    parser.add_argument("--name", help="what the results call it; the folder's name where not given")
    parser.add_argument("--data", required=True, help="the folder of the sets")
    parser.add_argument("--tasks", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--limit", type=int, help="only the first rows of every split; results are not kept")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda", "mps"])
    parser.add_argument("--threads", type=int, help="CPU threads; one a core where not given")
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32", "bf16"])
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except BertlineError as error:
        sys.exit(f"error: {error}")
