"""The sweep stage: trials, then the best configurations over seeds on dev, and finally test, with
the baselines.

Below the order of the work stand the notes for readers of its result: known in advance, or found
during the sweep.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bertline.finetuning.job import check_options
from bertline.foundation.files import writing
from bertline.foundation.formats import markdown_table, short_title, with_spread
from bertline.foundation.progress import say
from bertline.modeling.text_vectors import MODULES_NAME
from bertline.sweep import bench, repetitions
from bertline.sweep.baseline_scores import score_baselines, scored_baselines
from bertline.sweep.folds import has_folds
from bertline.sweep.forecast import with_forecast
from bertline.sweep.fusion import combined_seeds
from bertline.sweep.job import SweepJob
from bertline.sweep.results import Outcomes, sweep_figures, write_sweep_result
from bertline.sweep.space import planned_points, space_of
from bertline.sweep.studies import workers_matter
from bertline.sweep.workers import FINISHED, best_points, leading


def run_sweep(job: SweepJob) -> dict[str, float]:
    """Tune, repeat and compare on one task, or resume a killed sweep; return the headline figures.

    Finished trials and repetitions are in the studies and the run folder and are not run again.

    Raises:
        MachineError: The studies cannot be read or written, or every run of the encoder failed.
    """
    with writing(job.run_folder):
        job.run_folder.mkdir(parents=True, exist_ok=True)
    planned_points(job.sweep, job.task)  # raises for an invalid space before any work
    plan = bench.plan_of(job)
    repetitions.check_method(plan)
    for start in plan.starts.values():  # likewise for lengths an encoder cannot read, and options without effect
        check_options(bench.kind_of(job, start), plan.fine_tuning, varied=space_of(job.sweep, job.task))
        if (start.folder / MODULES_NAME).is_file():
            say(f"{start.folder}: fine-tuning and baselines take its encoder alone, without what {MODULES_NAME} names")
    if job.task.teacher is not None:  # checked before any work; its soft targets are computed once, for all processes
        bench.Bench(plan).run("encoder", {}, num_train_rows=job.task.num_train_rows, seed=0)
    if a_person_waits := len(job.sweep.methods) > 1 or job.sweep.fold_rows > 0:  # as of `bertline finetune`
        plan = with_forecast(plan)
    notes = notes_before(plan)
    with leading(plan) as leader:
        trials = leader.run_trials()
        points = best_points(job, leader.arms)
        tried = repetitions.methods_tried(plan, points)
        if a_person_waits and not job.sweep.encoders:  # of several, the baselines have the vectors of the best
            candidates = repetitions.candidates_over_seeds(plan, points)
            # For the other processes, while this one scores the baselines.
            leader.queue_repetitions(tried or repetitions.folds_needed(plan, candidates) or candidates)
            score_baselines(leader.bench, plan.starts["encoder"])
        leader.run_repetitions(tried)
        points, choices = repetitions.with_best_methods(plan, points, tried)
        notes += _said(plan, choices)
        candidates = repetitions.candidates_over_seeds(plan, points)
        leader.run_repetitions(repetitions.folds_needed(plan, candidates))
        leader.run_repetitions(candidates)
        chosen = repetitions.winners(plan, candidates)
        # From here on, this is the arm `encoder` in all but its own records.
        best = repetitions.chosen_encoder(job, chosen)
        if best != "encoder":
            task = replace(job.task, start_from=plan.starts[best].start)  # the exported task.json names it
            plan = replace(plan, job=replace(job, task=task), starts=bench.led_by(best, plan.starts))
        trials, chosen = bench.led_by(best, trials), bench.led_by(best, chosen)
        others = repetitions.label_efficiency(plan, chosen)
        leader.queue_repetitions(others)  # for the other processes, while this one reads test
        repetitions.read_tests(leader.bench, chosen)
        repetitions.write_repetition_events(plan.job, candidates)
        notes += notes_after(plan, chosen)
        score_baselines(leader.bench, plan.starts["encoder"])
        leader.run_repetitions(others)
        repetitions.write_repetition_events(plan.job, others)
        baselines = scored_baselines(plan)
        if combined := combined_seeds(plan, chosen["encoder"], baselines):
            chosen["combined"] = combined
        outcomes = Outcomes(trials, candidates, chosen, others, baselines)
        result = write_sweep_result(plan, outcomes, workers_matter=workers_matter(job.sweep), note=" ".join(notes))
        leader.seeds.set_user_attr(FINISHED, True)
        shutil.rmtree(job.checkpoints, ignore_errors=True)  # of trials that diverged
    say(_summary(result))
    return sweep_figures(result)


def _summary(result: dict[str, Any]) -> str:
    """Return the scores of the encoder and its opponents, the conclusion, and the tables of several
    encoders."""
    encoder = result["arms"]["encoder"]
    others = [
        f"{other['title']} {with_spread(other['test_mean'], other['test_std'])}"
        for arm, other in result["arms"].items()
        if arm != "encoder"
    ]
    others += [f"{baseline['title']} {baseline['test']:.3f}" for baseline in result["baselines"].values()]
    num_seeds = len(encoder["seeds"])
    runs = f"over {num_seeds} seeds" if num_seeds > 1 else "in one run"
    score = f"{result['task']}: test {result['metric']} {with_spread(encoder['test_mean'], encoder['test_std'])} {runs}"
    sentences = ["; ".join([score, ", ".join(others)]) if others else score, result["conclusion"]["sentence"]]
    tables = [markdown_table(*shown) for shown in result["encoders"]["tables"]]
    sentences.append(result.get("label_curve", {}).get("sentence", ""))
    return "\n".join(filter(None, [*sentences, result["encoders"]["sentence"], *tables]))


_WORDS: dict[bench.Arm, str] = {
    "encoder": "the encoder",
    "combined": "the encoder combined with BM25",
    "without_teacher": "the encoder without its teacher",
    "random_weights": "the encoder from random weights",
}


def _name(plan: bench.PlannedSweep, arm: bench.Arm) -> str:
    is_one_of_several = plan.job.sweep.encoders and arm.startswith("encoder")
    return short_title(plan.starts[arm].title) if is_one_of_several else _WORDS[arm]


def notes_before(plan: bench.PlannedSweep) -> list[str]:
    """Return, and print, notes that follow from the configuration."""
    sweep, task = plan.job.sweep, plan.job.task
    sentences = []
    if not space_of(sweep, task):
        sentences.append("Nothing was tuned: there is one configuration.")
    elif workers_matter(sweep):
        sentences.append(
            "Trials were proposed or stopped in view of those that had ended before, so another number of workers may "
            "find another configuration."
        )
    if has_folds(plan.job):
        num_rows = bench.split_sizes(plan.job)["train"]
        sentences.append(
            f"Choices are made on folds of the {num_rows:,} rows of train and dev, and all of them are learned from; "
            "scores on dev are those of predictions out of fold."
        )
    if bench.calibration_split(plan.job) != "dev":
        sentences.append("Half of dev chooses nothing; it tells how sure the model is (bertline predict coverage=0.9).")
    if lacking := sweep.lacking_points(task):
        sentences.append(lacking)
    if plan.starts["encoder"].weights == "pretrained" and plan.fine_tuning.num_epochs == 0:
        sentences.append("The encoder is scored as it is; nothing is random, so there is one run and no spread.")
    elif sweep.num_seeds == 1:
        sentences.append("One seed was run, so the spread over seeds is not known.")
    return _said(plan, sentences)


def _said(plan: bench.PlannedSweep, sentences: list[str]) -> list[str]:
    for sentence in sentences:
        say(f"{plan.job.task_name}: {sentence}")
    return sentences


def notes_after(plan: bench.PlannedSweep, winners: Mapping[bench.Arm, Sequence[repetitions.Repetition]]) -> list[str]:
    """Return, and print, notes on the runs: arms without a result, truncated rows."""
    missing = [_name(plan, arm) for arm in plan.starts if arm not in winners]
    left_out = [f"Every run of {name} diverged or failed, so it is left out." for name in missing]
    return _said(plan, left_out + _cut_rows(plan, winners))


def _cut_rows(plan: bench.PlannedSweep, winners: Mapping[bench.Arm, Sequence[repetitions.Repetition]]) -> list[str]:
    """Return a note for each arm whose rows were truncated: the maximum length, and how many were longer."""
    sizes, notes = bench.split_sizes(plan.job), []
    for arm, seeds in winners.items():
        config = bench.kind_of(plan.job, plan.start_of(arm)).config
        limits = [f"{name} ({getattr(config, name)} tokens)" for name in bench.LENGTHS if hasattr(config, name)]
        counts = seeds[0].cut_rows(plan.job)
        cut = [
            f"{count:,} of {sizes[name]:,} {name.replace('_', ' ')} rows" if name in sizes else f"{count:,} {name}"
            for name in ("train", "dev", *bench.test_splits(plan.job), repetitions.DOCUMENTS)
            if (count := counts.get(name))
        ]
        if cut:
            notes.append(f"Longer than {' or '.join(limits)}, and so cut for {_name(plan, arm)}: {', '.join(cut)}.")
    return notes
