"""One fine-tuning run: trains an encoder on a task and returns the model and its dev scores."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from bertline.finetuning.job import DevCheck, DevOutcome, FineTuningJob, check_options, evaluate_on_dev, starting_model
from bertline.foundation.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuningResult:
    """Result of a fine-tuning run."""

    model: nn.Module
    checks: tuple[DevCheck, ...]
    """All dev evaluations in order."""
    dev: DevOutcome
    """Outcome of the final model: the last epoch's, or with early stopping the best epoch's."""


def fine_tune(job: FineTuningJob, *, on_check: Callable[[DevCheck], None] | None = None) -> FineTuningResult:
    """Fine-tune a model; the result depends on the job alone (bitwise on a CPU, for a fixed number of threads).

    Args:
        on_check: Called after each dev evaluation. An exception that it raises ends the run.

    Raises:
        ConfigError: The encoder has fewer layers than the configuration names, there is nothing to train, or a loss
            option does not apply to the task.
        DivergedError: The loss or the gradient is no longer finite.
        TrainingInterrupted: A signal stopped the run, which is saved in `checkpoints`.
    """
    config = job.config
    check_options(job.kind, config)
    if config.method == "full":
        model = starting_model(job)
        if config.num_epochs > 0:
            from bertline.finetuning.module import train  # loads Lightning: who supervises a sweep trains nothing

            checks, outcome = train(job, model, on_check)
            return FineTuningResult(model=model, checks=tuple(checks), dev=outcome)
        if job.kind.has_new_head(model):
            raise ConfigError(
                f"fine_tuning.num_epochs is 0, but the head of a task of the kind {job.kind.config.kind} starts from "
                "random weights, which are worth nothing untrained. Train at least one epoch."
            )
    else:
        from bertline.finetuning.few_labels import vector_classifier  # loads scikit-learn

        model = vector_classifier(job)
    outcome = evaluate_on_dev(job, model)
    check = DevCheck(1.0, 0, True, outcome.scores)
    if on_check is not None:
        on_check(check)
    return FineTuningResult(model=model, checks=(check,), dev=outcome)
