"""Result of a finished run: a folder that transformers can load, with the run's metrics."""

from __future__ import annotations

import copy
import shutil
import statistics
from pathlib import Path
from typing import Any

from bertline.foundation.files import folder_written_atomically
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.progress import say
from bertline.modeling.bert import MaskedLanguageModel
from bertline.modeling.huggingface import save_model
from bertline.pretraining.data import read_examples_manifest
from bertline.pretraining.divergence import read_health
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.plan import Plan
from bertline.tokenization.storage import copy_tokenizer
from bertline.training.checkpoints import Checkpoint

_HEADLINES = ("train/loss", "val/", "probe/")


def write_latest(job: PretrainJob, model: MaskedLanguageModel) -> None:
    """Replace the model folder of the newest weights."""
    with folder_written_atomically(job.latest_folder) as folder:
        _write_model(job, model, folder)


def write_best(job: PretrainJob, model: MaskedLanguageModel, best: Checkpoint) -> None:
    """Write the model folder of the step with the lowest held-out loss.

    Args:
        job: Job of the run.
        model: Model of the last step; it is not modified.
        best: Checkpoint of the best step.
    """
    model = copy.deepcopy(model)
    model.load_state_dict(best.state["model"])
    with folder_written_atomically(job.best_folder) as folder:
        _write_model(job, model, folder)
    loss = best.state["best"][f"val/{job.objective.judged_by}"]
    say(
        f"the held-out loss was lowest ({loss:.4f}) after step {best.step:,}; "
        f"that model is in {job.best_folder}, the last one is the result"
    )


def write_result(
    job: PretrainJob,
    model: MaskedLanguageModel,
    identity: dict[str, Any],
    *,
    totals: dict[str, float],
    best: dict[str, Any] | None,
) -> dict[str, float]:
    """Write the result folder and return the headline figures.

    Args:
        job: Job of the run.
        model: Model of the last step.
        identity: Everything that the weights depend on.
        totals: `Totals.as_mapping` of the run.
        best: Step with the lowest held-out loss, and that loss, for the manifest.
    """
    metrics = headline_figures(job, model, totals)
    with folder_written_atomically(job.result_folder) as folder:
        _write_model(job, model, folder)
        for path in (job.metrics_path, job.mask_predictions_path, job.health_path):
            if path.exists():
                shutil.copyfile(path, folder / path.name)
        content = {
            "metrics": metrics,
            "best": best,
            "training": identity,
            "versions": versions_of("torch", "pytorch-lightning"),
        }
        write_manifest(folder, kind="pretrain", format_version=1, content=content)
    return metrics


def _write_model(job: PretrainJob, model: MaskedLanguageModel, folder: Path) -> None:
    save_model(model, folder)
    copy_tokenizer(job.tokenizer_folder, folder, max_length=_longest_trained(job))


def _longest_trained(job: PretrainJob) -> int | None:
    """Return the longest sequence length of the run; None if its initial checkpoint may have seen longer ones."""
    return None if job.start_from_folder else max(phase.max_length for phase in job.pretrain.phases)


def headline_figures(job: PretrainJob, model: MaskedLanguageModel, totals: dict[str, float]) -> dict[str, float]:
    """Return the last value of each headline metric, and totals of the run.

    `perf/tokens_per_s` and `perf/mfu` are medians over the rows of metrics.jsonl, so that compilation and a busy minute
    do not count.
    """
    rows = [row.metrics for row in read_metrics(job.metrics_path)]
    last = {key: value for row in rows for key, value in row.items() if key.startswith(_HEADLINES)}
    length = str(Plan.of(job.pretrain).place(job.pretrain.num_steps - 1).max_length)
    return {
        **last,
        "unigram_entropy": read_examples_manifest(job.examples_folder)["lengths"][length]["unigram_entropy"],
        **{key: statistics.median(row[key] for row in rows if key in row) for key in ("perf/tokens_per_s", "perf/mfu")},
        "perf/data_wait_fraction": totals["data_wait_s"] / totals["train_time_s"],
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "num_tokens": totals["tokens"],
        "num_alarms": len(read_health(job.health_path)),
        "train_time_s": totals["train_time_s"],
        "steps": job.pretrain.num_steps,
    }
