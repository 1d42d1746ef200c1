"""Configuration of the sweep: trials, selection over seeds, and the arms to compare with."""

import math
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from bertline.finetuning.config import FineTuningConfig
from bertline.foundation.checked import Checked, PositiveFloat, PositiveInt, UserPathOrHubName, at_least
from bertline.tasks.config import BaseTaskConfig, ChoiceSpace, LogUniformSpace, SpaceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedSamplerConfig:
    """Points that follow from the seed.

    `grid`: every combination of the choices, in shuffled order; `num_trials` may cut it short.
    `random`: random points; if all axes are choices, every combination is drawn once. `qmc`: a
    scrambled Sobol sequence, which covers the space more evenly.
    """

    kind: Literal["grid", "random", "qmc"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSamplerConfig:
    """Proposes points by a model of the trials so far: `tpe`, a tree-structured Parzen estimator
    (Optuna's default), or `gp`, a Gaussian process, for few trials of a small space. What it
    proposes depends on which trials have ended."""

    kind: Literal["tpe", "gp"]
    num_startup_trials: int
    """Number of random trials before the model is used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPrunerConfig:
    """No pruning: every trial runs to completion."""

    kind: Literal["none"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MedianPrunerConfig:
    """Stops a trial whose score is below the median of earlier trials at the same epoch."""

    kind: Literal["median"]
    num_startup_trials: int
    """Number of finished trials before any is stopped."""
    num_warmup_epochs: int
    """Number of epochs of a trial in which it is never stopped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HalvingPrunerConfig(Checked):
    """Of the trials that reach a rung, only the best continue.

    `successive_halving` is asynchronous (arXiv 1810.05934). `hyperband` (arXiv 1603.06560) divides
    the trials among several halvings, the first of which begins at the first rung, the second at
    the second, and so on.

    Rungs are fractions of a trial's own schedule, so a trial of two epochs and one of four are
    compared at the same point of their learning-rate decay.
    """

    kind: Literal["successive_halving", "hyperband"]
    reduction_factor: Annotated[int, at_least(2)]
    """One in `reduction_factor` trials continues past a rung; each rung is this many times further
    than the last."""
    num_rungs: PositiveInt
    """Number of rungs before the end: with a factor of 2 and 3 rungs, at 1/8, 1/4 and 1/2 of the
    schedule."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepConfig(Checked):
    """Configuration of the sweep of each task."""

    seed: int
    """Seed of the search; the repeated runs have seeds that follow from it."""
    num_trials: PositiveInt
    """Number of trials of the search of each task; a task's own (`tasks.NAME.num_trials`) comes
    first."""
    sampler: PlannedSamplerConfig | ModelSamplerConfig
    pruner: NoPrunerConfig | MedianPrunerConfig | HalvingPrunerConfig
    fine_tuning: FineTuningConfig
    """Values of the hyperparameters that the space does not vary."""
    space: dict[str, ChoiceSpace | LogUniformSpace]
    """Fields of `fine_tuning` that trials vary."""
    task_spaces: bool
    """Whether entries of a task's own `space` come before those of the same name here; else only
    these are searched."""
    num_best: PositiveInt
    """Number of best configurations to repeat over seeds; the one with the best mean on dev wins."""
    num_seeds: PositiveInt
    """Number of runs of each of the best configurations, one per seed; the spread is computed over
    them."""
    num_label_efficiency_seeds: PositiveInt
    """Number of runs at each other training size (`tasks.NAME.label_efficiency_rows`)."""
    precision: Literal["auto", "fp32", "bf16"]
    """Dtype of fine-tuning; auto: bf16 if the hardware computes it natively, else fp32."""
    random_weights_baseline: Literal["always", "up_to_small", "never"]
    """Whether to run the same trials with the encoder's weights initialised randomly.
    `up_to_small`: only for encoders pretrained here with at most 4 layers of hidden size 512
    (BERT-small); for larger ones and public checkpoints it costs as much as the encoder's trials,
    and the answer is known."""
    random_weights_epochs: tuple[PositiveFloat, ...]
    """Numbers of epochs for trials from random weights, as multiples of the encoder's: at least
    three different ones, from which dev chooses."""
    random_weights_seeds: PositiveInt | None
    """Number of runs of each of the best configurations from random weights, at most `num_seeds`;
    None: `num_seeds`. The significance test takes the number of runs into account."""
    encoders: tuple[UserPathOrHubName, ...]
    """Other encoders of any family (folders, or hub names with their revision) to run with the same
    trials and seeds, to answer which is best on one's own task: a table of all, and a verdict on
    every two."""
    exported: Literal["own", "best", "winner"]
    """What is exported and registered: `own`, the encoder that the task starts from; `best`, the
    encoder of all with the best mean on dev; or `winner`, that or, if it is ahead on dev beyond the
    noise, the best of the baselines that a folder can hold (n-grams, what a pair shares, the tagger
    over a window of words), with the encoder beside it. If the best of several encoders is asked
    for, none is run from random weights."""
    methods: tuple[Literal["frozen", "contrastive", "full"], ...] = ("full",)
    """Ways to learn from labels (`FineTuningConfig.method`), the cheapest first; dev chooses by one
    seed, among equals the first, and `full` only if it is ahead by more than a standard error (on
    folds two). Regression has no `contrastive`; other kinds than these two, and tasks with several
    labels a row, have `full` alone."""
    fold_rows: int = 0
    """Number of train and dev rows together below which classification makes its choices on five
    folds of both, if dev was not given, and learns from all; 0 never."""
    label_curve: bool = False
    """Whether the encoder and the best n-grams also learn from `num_label_efficiency_seeds` draws
    of an eighth, a quarter, half and three quarters of the train rows, to tell what twice the
    labels would buy."""
    calibration_rows: int = 0
    """Number of rows from which on half of dev chooses nothing in classification with one label a
    row, so that sets of labels (`bertline predict coverage=`) hold the right one as often as asked;
    0 never, and it is so approximately."""

    def check(self) -> None:
        known = {field.name for field in fields(FineTuningConfig)}
        for name in self.space:
            if name not in known:
                raise ValueError(f"space.{name} is not a field of fine_tuning; known: {', '.join(sorted(known))}")
        if len(set(self.random_weights_epochs)) < 3:
            raise ValueError(
                f"random_weights_epochs must have at least three different multiples, such as [0.5, 1, 2], "
                f"found {list(self.random_weights_epochs)}"
            )

    def deciding(self, name: str, task: BaseTaskConfig, field: str) -> str:
        """Return the key of the configuration that decides a hyperparameter of a task."""
        if self.task_spaces and field in task.space:
            return f"tasks.{name}.space.{field}"
        if field in task.fine_tuning:
            return f"tasks.{name}.fine_tuning.{field}"
        return f"sweep.{'space' if field in self.space else 'fine_tuning'}.{field}"

    def searched(self, task: BaseTaskConfig) -> dict[str, SpaceConfig]:
        """Return what trials of a task vary: what `space` has and the task does not fix, and what
        its own space has."""
        shared = {name: values for name, values in self.space.items() if name not in task.fine_tuning}
        return {**shared, **(task.space if self.task_spaces else {})}

    def lacking_points(self, task: BaseTaskConfig) -> str:
        """Return a sentence about a space with fewer points than trials are asked for; empty if it
        has enough."""
        sizes = [len(one.values) if isinstance(one, ChoiceSpace) else math.inf for one in self.searched(task).values()]
        num_points, num_trials = math.prod(sizes), task.num_trials or self.num_trials
        if not sizes or num_points >= num_trials:
            return ""
        then = "each is tried once" if self.sampler.kind in ("grid", "random") else "some are tried again"
        return f"{num_trials} trials are asked for, but the space has {num_points} points: {then}."
