"""The artifact of a sweep: result.json, tables of trials and predictions, and the best classifier."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from bertline.foundation.files import folder_written_atomically, write_json
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.sweep.baselines import BaselineScores
from bertline.sweep.config import NoPrunerConfig, TpeSamplerConfig
from bertline.sweep.job import Arm, SweepJob
from bertline.sweep.repetitions import Repetition, outcome_of, test_probabilities_of
from bertline.sweep.space import Params
from bertline.sweep.study import ENDED, open_study
from bertline.sweep.summary import comparison, confident_errors, confusion, score_summary, spread
from bertline.tasks.storage import Rows, read_rows, read_task_manifest
from bertline.tokenization.storage import TOKENIZER_FILES

KIND = "sweep"
FORMAT_VERSION = 1
_MODEL_FILES = ("config.json", "model.safetensors", *TOKENIZER_FILES)


def write_result(
    job: SweepJob,
    chosen: dict[Arm, Params],
    repetitions: list[Repetition],
    baselines: dict[str, BaselineScores],
    tfidf_by_rows: dict[int, float],
) -> dict[str, Any]:
    """Write `result/` and return the content of result.json."""
    manifest = read_task_manifest(job.task_folder)
    labels: list[str] = manifest["labels"]
    test = read_rows(job.task_folder, "test")
    main = {arm: [r for r in repetitions if r.arm == arm and r.kind == "seed"] for arm in job.arms}
    best = max(main["encoder"], key=lambda r: (outcome_of(job, r)["dev"], -r.seed))
    probabilities = test_probabilities_of(job, best)
    trials = {arm: open_study(job.run_folder, arm, job.sweep).get_trials(states=ENDED) for arm in job.arms}
    arms = {arm: _arm(job, chosen[arm], main[arm], trials[arm]) for arm in job.arms}
    train_rows = job.task.num_train_rows or manifest["counts"]["train"]
    result = {
        "task": job.task_name,
        "metric": job.task.metric,
        "labels": labels,
        "num_trials": len([trial for trial in trials["encoder"] if trial.state != TrialState.FAIL]),
        "num_seeds": job.sweep.num_seeds,
        "rows": {"train": train_rows, "dev": manifest["counts"]["dev"], "test": manifest["counts"]["test"]},
        "arms": {"encoder": arms["encoder"], "random_weights": arms.get("random_weights")},
        "baselines": {
            "majority": {"dev": baselines["majority"].dev, "test": baselines["majority"].test},
            "tfidf_logistic_regression": {
                "dev": baselines["tfidf"].dev,
                "test": baselines["tfidf"].test,
                "best_params": {"C": baselines["tfidf"].c},
            },
        },
        "comparison": _comparison(arms),
        "label_efficiency": _label_efficiency(job, repetitions, tfidf_by_rows, train_rows),
        "confusion_matrix": confusion(test, probabilities, len(labels)),
        "examples": {"confident_errors": confident_errors(test, probabilities, labels)},
    }
    with folder_written_atomically(job.run_folder / "result") as folder:
        write_json(folder / "result.json", result)
        pq.write_table(_trials_table(trials), folder / "trials.parquet")
        pq.write_table(_predictions_table(test, probabilities, labels), folder / "predictions.parquet")
        _copy_model(best.folder(job), folder / "best")
        order_matters = isinstance(job.sweep.sampler, TpeSamplerConfig) or not isinstance(
            job.sweep.pruner, NoPrunerConfig
        )
        content = {
            "task": job.task_name,
            "metric": job.task.metric,
            "labels": labels,
            "best_seed": best.seed,
            "trials_depend_on_number_of_workers": order_matters,
            "versions": versions_of("optuna", "scikit-learn", "tokenizers", "torch"),
        }
        write_manifest(folder, kind=KIND, format_version=FORMAT_VERSION, content=content)
    return result


def headline(result: dict[str, Any]) -> dict[str, float]:
    """The figures of artifacts/metrics: the encoder's score beside everything it is measured against."""
    metric, arms, baselines = result["metric"], result["arms"], result["baselines"]
    figures = {
        f"test/{metric}_mean": arms["encoder"]["test_mean"],
        f"test/{metric}_std": arms["encoder"]["test_std"],
        f"dev/{metric}_mean": arms["encoder"]["dev_mean"],
        f"majority/test/{metric}": baselines["majority"]["test"],
        f"tfidf/test/{metric}": baselines["tfidf_logistic_regression"]["test"],
        "num_trials": result["num_trials"],
    }
    if arms["random_weights"] is not None:
        figures |= {
            f"random_weights/test/{metric}_mean": arms["random_weights"]["test_mean"],
            f"random_weights/test/{metric}_std": arms["random_weights"]["test_std"],
            "difference": result["comparison"]["difference"],
            "threshold": result["comparison"]["threshold"],
            "beats_random_weights": int(result["comparison"]["beats_random_weights"]),
        }
    return figures


def _arm(job: SweepJob, params: Params, seeds: list[Repetition], trials: list[FrozenTrial]) -> dict[str, Any]:
    finished = [trial.value for trial in trials if trial.state == TrialState.COMPLETE and trial.value is not None]
    return {
        "best_params": params,
        "best_dev": max(finished),
        "trials": [
            {"number": trial.number, "state": trial.state.name, "params": trial.params, "dev": _last_dev(trial)}
            for trial in trials
        ],
        **score_summary([outcome_of(job, seed) for seed in seeds]),
    }


def _last_dev(trial: FrozenTrial) -> float | None:
    """The score of the last epoch that the trial saw; None where it failed before the first."""
    return trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else None


def _comparison(arms: dict[Arm, dict[str, Any]]) -> dict[str, Any] | None:
    if "random_weights" not in arms:
        return None
    encoder, random_weights = ([seed["test"] for seed in arms[arm]["seeds"]] for arm in ("encoder", "random_weights"))
    return comparison(encoder, random_weights)


def _label_efficiency(
    job: SweepJob, repetitions: list[Repetition], tfidf_by_rows: dict[int, float], train_rows: int
) -> list[dict[str, Any]]:
    """Test scores by training size; the main size takes part with the seeds that were run anyway."""
    table: list[dict[str, Any]] = []
    for rows in sorted(tfidf_by_rows):
        for arm in job.arms:
            scores = [
                outcome_of(job, repetition)["test"]
                for repetition in repetitions
                if repetition.arm == arm and (repetition.num_train_rows or train_rows) == rows
            ]
            table.append(
                {
                    "rows": rows,
                    "arm": arm,
                    "test_mean": statistics.fmean(scores),
                    "test_std": spread(scores),
                    "num_seeds": len(scores),
                }
            )
        tfidf = {"rows": rows, "arm": "tfidf_logistic_regression", "test_mean": tfidf_by_rows[rows]}
        table.append({**tfidf, "test_std": 0.0, "num_seeds": 1})
    return table


def _trials_table(trials: dict[Arm, list[FrozenTrial]]) -> pa.Table:
    names = sorted({name for of_arm in trials.values() for trial in of_arm for name in trial.params})
    records = [
        {
            "arm": arm,
            "number": trial.number,
            "state": trial.state.name,
            "dev": _last_dev(trial),
            "num_epochs_run": len(trial.intermediate_values),
            "time_s": trial.duration.total_seconds() if trial.duration is not None else None,
            **{name: float(trial.params[name]) if name in trial.params else None for name in names},
        }
        for arm, of_arm in trials.items()
        for trial in of_arm
    ]
    return pa.Table.from_pylist(records)


def _predictions_table(test: Rows, probabilities: NDArray[np.float32], labels: list[str]) -> pa.Table:
    predicted = probabilities.argmax(axis=1)
    pairs: Sequence[str | None] = test.text_pairs or [None] * len(test)
    return pa.table(
        {
            "id": test.ids,
            "text": test.texts,
            "text_pair": pa.array(pairs, type=pa.string()),
            "label": [labels[i] for i in test.labels],
            "predicted": [labels[i] for i in predicted],
            "score": probabilities[np.arange(len(test)), predicted].astype(np.float64),
        }
    )


def _copy_model(source: Path, target: Path) -> None:
    target.mkdir()
    for name in _MODEL_FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
