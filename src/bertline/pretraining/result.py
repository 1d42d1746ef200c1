"""What a finished run gives: a folder that transformers loads, with its figures."""

from __future__ import annotations

import shutil
import statistics
from typing import Any

from bertline.foundation.files import folder_written_atomically
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.foundation.metrics_log import read_metrics
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.huggingface import save_model
from bertline.pretraining.data import read_examples_manifest
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.plan import Plan
from bertline.tokenization.storage import copy_tokenizer

_HEADLINES = ("train/loss", "val/mlm_loss", "val/mlm_accuracy", "val/nsp_loss", "val/nsp_accuracy", "probe/")


def write_latest(job: PretrainJob, model: BertForPreTraining) -> None:
    """Replace the model folder of the newest weights."""
    with folder_written_atomically(job.latest_folder) as folder:
        save_model(model, folder)
        copy_tokenizer(job.tokenizer_folder, folder, max_length=_longest_trained(job))


def write_result(
    job: PretrainJob, model: BertForPreTraining, identity: dict[str, Any], totals: dict[str, float]
) -> dict[str, float]:
    """Write the result folder and return the headline figures."""
    metrics = headline_figures(job, model, totals)
    with folder_written_atomically(job.result_folder) as folder:
        save_model(model, folder)
        copy_tokenizer(job.tokenizer_folder, folder, max_length=_longest_trained(job))
        for path in (job.metrics_path, job.film_strip_path):
            if path.exists():
                shutil.copyfile(path, folder / path.name)
        content = {"metrics": metrics, "training": identity, "versions": versions_of("torch", "pytorch-lightning")}
        write_manifest(folder, kind="pretrain", format_version=1, content=content)
    return metrics


def _longest_trained(job: PretrainJob) -> int | None:
    """The longest sequence of the run; None where the checkpoint it started from may have seen longer ones."""
    return None if job.start_from_folder else max(phase.max_length for phase in job.pretrain.phases)


def headline_figures(job: PretrainJob, model: BertForPreTraining, totals: dict[str, float]) -> dict[str, float]:
    """The last value of each validation figure, and what the training took.

    `perf/tokens_per_s` is the median over the rows of metrics.jsonl: compiling and a busy minute do not count.
    """
    rows = [row.metrics for row in read_metrics(job.metrics_path)]
    last = {key: value for row in rows for key, value in row.items() if key.startswith(_HEADLINES)}
    length = str(Plan.of(job.pretrain).place(job.pretrain.num_steps - 1).max_length)
    return {
        **last,
        "unigram_entropy": read_examples_manifest(job.examples_folder)["lengths"][length]["unigram_entropy"],
        "perf/tokens_per_s": statistics.median(row["perf/tokens_per_s"] for row in rows if "perf/tokens_per_s" in row),
        "perf/data_wait_fraction": totals["data_wait_s"] / totals["train_time_s"],
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "num_tokens": totals["tokens"],
        "train_time_s": totals["train_time_s"],
        "steps": job.pretrain.num_steps,
    }
