"""The default pipeline in a clone, from its first command to its report, with several seeds of pretraining.

python benchmarks/default_run.py --seeds 0 1 2 --keep
python benchmarks/default_run.py --experiment docs_long --seeds 0

Each run is a `dvc repro` from an empty compiler cache; only the first one reads the corpus. A verdict of the default
run counts the noise of fine-tuning seeds, of rows, and of these pretrainings. The last line is JSON. With `--folder`
the clone stays, and beside it, in `seed-N`, what a commit of a run holds: figures, `dvc.lock` and `params.yaml`.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from measurements import Measurement, parser_of
from processes import Clone
from scipy.special import stdtrit

from bertline.foundation.files import read_json
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name
from bertline.training.devices import resolve_precision
from bertline.training.matmul_rate import hot_matmul_rate

DEFAULT = "docs_tiny"
KEPT = ("artifacts/metrics", "artifacts/headline", "dvc.lock", "params.yaml")


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the pipeline once for each seed; return the record."""
    cpu = torch.device("cpu")
    precision = resolve_precision("auto", cpu)
    figures: dict[str, Any] = {
        "device": arguments.device or processor_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": torch.get_num_threads(),
        "precision": precision,
        "matmul_flops": hot_matmul_rate(cpu, precision),
    }
    with tempfile.TemporaryDirectory(prefix="bertline-default-") as temporary:
        folder = Path(arguments.folder or temporary) / "bertline"
        clone = Clone(folder)
        runs = [_of_seed(clone, seed, arguments.experiment) for seed in arguments.seeds]
    figures |= {"runs": runs, "tasks": {task: _over_runs(runs, task) for task in _tasks(runs)}}
    if arguments.keep:
        name, versions = arguments.experiment, {"python": sys.version.split()[0], **versions_of("torch")}
        record = Measurement(
            benchmark="default_run", model=name, seq_len=64, variant=precision, figures=figures, versions=versions,
            arguments=arguments, not_recorded=("folder", "device"),
        )  # fmt: skip
        print(record.write(Path(arguments.keep), commit=arguments.commit))
    return figures


def _of_seed(clone: Clone, seed: int, experiment: str) -> dict[str, Any]:
    """Run the pipeline with one seed of pretraining; return wall seconds and all figures."""
    folder = clone.folder
    chosen = [*([f"experiment={experiment}"] * (experiment != DEFAULT)), *([f"pretrain.seed={seed}"] * (seed != 0))]
    if chosen:
        clone.configure(*chosen)
    begun = time.monotonic()
    clone.reproduce(TORCHINDUCTOR_CACHE_DIR=str(folder.parent / f"compiled-{seed}"))
    wall_s = time.monotonic() - begun
    for name in KEPT:
        source, target = folder / name, folder.parent / f"seed-{seed}" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
    metrics = {path.stem: read_json(path) for path in sorted((folder / "artifacts/metrics").glob("*.json"))}
    headline = {path.stem: read_json(path) for path in sorted((folder / "artifacts/headline").glob("*.json"))}
    return {
        "seed": seed,
        "wall_s": wall_s,
        "seconds": {stage: figures["seconds"] for stage, figures in headline.items()},
        "pretrain": metrics["pretrain"],
        "evaluate": metrics["evaluate"],
        "sweeps": {name.partition("@")[2]: of for name, of in metrics.items() if name.startswith("sweep@")},
    }


def _tasks(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({f"{task}/{system}" for run in runs for task, of in run["sweeps"].items() for system in _systems(of)})


def _systems(figures: Mapping[str, Any]) -> list[str]:
    return [key.partition("/")[0] for key in figures if key.endswith("/difference_from_strongest")]


def _over_runs(runs: Sequence[Mapping[str, Any]], task_and_system: str) -> dict[str, Any]:
    """Compare a system with the strongest simple opponent of each run, with the noise of the runs added.

    The half of the interval is joined from that of a run (fine-tuning seeds and rows, which all runs share) and that of
    the mean over runs, by Student's t, as in `foundation.verdicts`.
    """
    task, system = task_and_system.split("/")
    found = [run["sweeps"][task] for run in runs]
    differences = [of[f"{system}/difference_from_strongest"] for of in found]
    halves = [(of[f"{system}/difference_high"] - of[f"{system}/difference_low"]) / 2 for of in found]
    mean, known = statistics.mean(differences), len(differences) - 1
    if not known:
        return {"differences": differences, "mean": mean}
    reach = float(stdtrit(known, 0.975)) * statistics.stdev(differences) / math.sqrt(len(differences))
    half = math.hypot(reach, statistics.mean(halves))
    verdict = "better" if mean - half > 0 else "worse" if mean + half < 0 else "not shown"
    return {"differences": differences, "mean": mean, "low": mean - half, "high": mean + half, "verdict": verdict}


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--experiment", default=DEFAULT)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folder", help="where the clone stays; else a temporary one")
    parser.add_argument("--device", help="what to call the processor, where it is told to use fewer instructions")
    print(json.dumps(main(parser.parse_args())))
