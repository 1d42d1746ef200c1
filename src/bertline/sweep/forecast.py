"""How long a sweep will take: some steps of its own shape are measured, and the rest follows from
the plan."""

import itertools
import math
import statistics
import time
from dataclasses import replace

import torch

from bertline.encoding.sequences import Epochs
from bertline.finetuning import few_labels
from bertline.finetuning.embedding_rows import rows_to_train
from bertline.finetuning.job import FineTuningJob, num_epochs_of, starting_model
from bertline.finetuning.parameter_groups import fine_tuning_optimizer
from bertline.foundation.formats import duration
from bertline.foundation.parallel import usable_cores
from bertline.foundation.progress import say
from bertline.kinds.base import LossOptions
from bertline.sweep.bench import Bench, PlannedSweep, num_sweep_workers, split_sizes
from bertline.sweep.folds import NUM_FOLDS, STEPS_IN_A_FOLD, has_folds
from bertline.sweep.repetitions import methods_tried
from bertline.training.groupwise import clip_gradients

_MOST_ROWS, _MEASURED_STEPS = 2_000, 4
# Measured on two cores of an AMD EPYC with MiniLM: seconds that do not depend on the rows (static
# vectors, report, ONNX files), and seconds of the simple methods for a row.
_REST_S, _ROW_S = 30.0, 0.01
_PADDING = 2.0  # batches of contrast are of texts of all lengths


def with_forecast(plan: PlannedSweep) -> PlannedSweep:
    """Say how long the rest of a command will take that has read its rows, and return the plan with
    its end.

    The method that will do best is not known: on folds of few rows it is taken to be `contrastive`,
    else the mean of that and `full` is taken.
    """
    job, sizes, sweep = plan.job, split_sizes(plan.job), plan.job.sweep
    num_seeds = sweep.num_seeds + 4 * sweep.num_label_efficiency_seeds * sweep.label_curve  # the curve has four sizes
    some = min(sizes["train"], _MOST_ROWS)  # rows are in random order
    run = Bench(plan).run("encoder", {}, num_train_rows=some, seed=0)
    config = run.config
    batches = run.kind.training_batches(run.train.encoded, batch_size=config.batch_size, seed=0)
    per_epoch, (step_s, num_tokens) = math.ceil(len(batches) * sizes["train"] / some), _measured_step(run, batches)

    def full_s(num_batches: int, most_steps: int | None = None) -> float:
        return step_s * num_batches * num_epochs_of(replace(run, most_steps=most_steps), num_batches)

    def contrastive_s(num_steps: int = few_labels.STEPS) -> float:
        return _PADDING * step_s * num_steps * few_labels.BATCH_SIZE / config.batch_size

    seed_s = {"frozen": 0.0, "contrastive": contrastive_s(), "full": full_s(per_epoch)}
    tried = [str(one.params.get("method", "full")) for one in methods_tried(plan, {"encoder": [{}]})]
    trained_s, num_read = num_seeds * seed_s["contrastive" if tried else config.method], 2 + num_seeds
    if has_folds(job):
        of_full = full_s(max(per_epoch * 4 // 5, 1), STEPS_IN_A_FOLD)
        fold_s = {"frozen": 0.0, "contrastive": contrastive_s(few_labels.STEPS // 2), "full": of_full}
        methods = tried or [config.method]
        trained_s += NUM_FOLDS * sum(fold_s[method] for method in methods)
        num_read += NUM_FOLDS * len(methods)
    elif tried:
        trained_s = (seed_s["full"] + seed_s["contrastive"]) * (num_seeds + 1) / 2
    trained_s += (sweep.num_trials if sweep.searched(job.task) else 0) * seed_s["full"]
    read_s = (sizes["train"] + sizes["test"]) * step_s / config.batch_size / 3  # without gradients
    arms = sum(arm.startswith("encoder") for arm in plan.starts)
    at_once = min(num_sweep_workers(job.runtime), len(usable_cores()))
    seconds = _REST_S + _ROW_S * sizes["train"] + arms * (trained_s / at_once + num_read * read_s)
    measured = f"{sizes['train']:,} rows to learn from, {step_s:.2g} s a step of {num_tokens:,} tokens"
    say(f"{job.task_name}: takes about {duration(seconds)} ({measured})")
    return replace(plan, ends_s=time.time() + seconds)


def _measured_step(run: FineTuningJob, batches: Epochs) -> tuple[float, int]:
    """Return the seconds of a step on a batch of middling length, and its number of tokens."""
    model, some = starting_model(run), list(itertools.islice(batches.of_epoch(0), 64))
    sizes = [max(values.numel() for name, values in batch.items() if name.endswith("input_ids")) for batch in some]
    middle = sizes.index(statistics.median_low(sizes))
    batch = {name: values.to(run.machine.device) for name, values in some[middle].items()}
    rows_to_train(model, batches, 1)
    optimizer = fine_tuning_optimizer(model, run.config)
    times: list[float] = []
    for _ in range(_MEASURED_STEPS):
        started = time.monotonic()
        with torch.autocast(run.machine.device.type, dtype=torch.bfloat16, enabled=run.machine.precision == "bf16"):
            loss = run.kind.loss(model, batch, LossOptions())
        loss.backward()
        clip_gradients(model.parameters(), run.config.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # waits for a GPU
        times.append(time.monotonic() - started)
    return min(times[1:]), sizes[middle]
