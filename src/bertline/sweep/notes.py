"""Notes for readers of a sweep's result, as sentences: known in advance, or found during the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bertline.sweep.bench import LENGTHS, kind_of, split_sizes, test_splits
from bertline.sweep.job import Arm, PlannedSweep
from bertline.sweep.repetitions import DOCUMENTS, Repetition
from bertline.sweep.space import space_of, space_of_arm
from bertline.sweep.trials import workers_matter
from bertline.tasks.config import ChoiceSpace

_WORDS: dict[Arm, str] = {
    "encoder": "the encoder",
    "combined": "the encoder combined with BM25",
    "random_weights": "the encoder from random weights",
    "reference_encoder": "the reference encoder",
}


def notes_before(plan: PlannedSweep) -> list[str]:
    """Return notes that follow from the configuration."""
    sweep, task = plan.job.sweep, plan.job.task
    sentences = []
    if not space_of(sweep, task):
        sentences.append("Nothing was tuned: there is one configuration.")
    elif workers_matter(sweep):
        sentences.append(
            "Trials were proposed or stopped in view of those that had ended before, so another number of workers may "
            "find another configuration."
        )
    if plan.starts["encoder"].weights == "pretrained" and plan.fine_tuning.num_epochs == 0:
        sentences.append("The encoder is scored as it is; nothing is random, so there is one run and no spread.")
    elif sweep.num_seeds == 1:
        sentences.append("One seed was run, so the spread over seeds is not known.")
    return sentences + _lowered_lengths(plan)


def notes_after(plan: PlannedSweep, winners: Mapping[Arm, Sequence[Repetition]]) -> list[str]:
    """Return notes on what the runs showed: arms without a result, a limiting number of epochs, truncated rows."""
    left_out = [
        f"Every run of {_WORDS[arm]} diverged or failed, so it is left out." for arm in plan.arms if arm not in winners
    ]
    return left_out + _most_epochs(plan, winners) + _cut_rows(plan, winners)


def _most_epochs(plan: PlannedSweep, winners: Mapping[Arm, Sequence[Repetition]]) -> list[str]:
    """Return a note if random weights did best with the largest number of epochs that they could choose."""
    epochs = space_of_arm(plan.job.sweep, plan.job.task, "random_weights").get("num_epochs")
    seeds = winners.get("random_weights")
    if not seeds or not isinstance(epochs, ChoiceSpace) or seeds[0].params["num_epochs"] < max(epochs.values):
        return []
    return [
        f"{_WORDS['random_weights'].capitalize()} did best with the most epochs that it was offered "
        f"({max(epochs.values):.0f}); larger sweep.random_weights_epochs might raise its score."
    ]


def _lowered_lengths(plan: PlannedSweep) -> list[str]:
    asked, sentences = plan.job.task, []
    for arm, start in plan.starts.items():
        if arm == "random_weights":
            continue  # it has the same number of positions as the encoder
        found = kind_of(plan.job, start).config
        sentences += [
            f"For {_WORDS[arm]} {name} is {getattr(found, name)} and not {getattr(asked, name)}: it has positions for "
            "no more tokens."
            for name in LENGTHS
            if getattr(found, name, None) != getattr(asked, name, None)
        ]
    return sentences


def _cut_rows(plan: PlannedSweep, winners: Mapping[Arm, Sequence[Repetition]]) -> list[str]:
    sizes = split_sizes(plan.job)
    arms_of: dict[tuple[str, str], list[str]] = {}
    for arm, seeds in winners.items():
        counts = seeds[0].cut_rows(plan.job)
        listed = [
            f"{counts[name]:,} of {sizes[name]:,} {name.replace('_', ' ')} rows"
            for name in ("train", "dev", *test_splits(plan.job))
            if counts.get(name)
        ]
        listed += [f"{counts[DOCUMENTS]:,} {DOCUMENTS}"] if counts.get(DOCUMENTS) else []
        if listed:
            arms_of.setdefault((_limit(plan, arm), ", ".join(listed)), []).append(_WORDS[arm])
    return [
        f"Longer than {limit}, and so cut for {' and '.join(arms)}: {listed}."
        for (limit, listed), arms in arms_of.items()
    ]


def _limit(plan: PlannedSweep, arm: Arm) -> str:
    """Return what truncated the rows: the encoder's positions if fewer than the task asks for, else the task's own."""
    asked, found = plan.job.task, kind_of(plan.job, plan.starts[arm]).config
    names = [name for name in LENGTHS if hasattr(asked, name)]
    if any(getattr(found, name) != getattr(asked, name) for name in names):
        return f"the {found.max_length} tokens that it has positions for"
    said = " or ".join(f"{name} ({getattr(asked, name)} tokens)" for name in names)
    return f"the task's {said}"
