"""Text and data output of a plan."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from bertline.foundation.formats import rough_duration, three_digits
from bertline.planning.budget import BestUse, Candidate
from bertline.planning.config import PlanConfig
from bertline.planning.forecast import Forecast, PhaseForecast, Resources, Training
from bertline.planning.scaling import DECODER_TOKENS_PER_PARAMETER, decoder_rule, encoder_rule

_WIDTH = 112
_LABEL = 9


def forecast_text(found: Forecast, training: Training, resources: Resources, config: PlanConfig) -> str:
    """Format the forecast of the present configuration."""
    model = training.model
    heads = found.parameters - found.embedding_parameters - found.encoder_parameters
    lines = [
        f"On {described(resources)}, in {training.precision}:",
        "",
        *wrapped(
            "model",
            f"{model.num_hidden_layers} layers, hidden {model.hidden_size}, {training.vocab_size:,} tokens: "
            f"{three_digits(found.parameters)} parameters ({three_digits(found.embedding_parameters)} embeddings, "
            f"{three_digits(found.encoder_parameters)} layers, {three_digits(heads)} heads)",
        ),
        *wrapped("text", tokens_of_text(resources)),
        "",
        *_phase_table(found, resources),
        "",
        *_hours_and_money(found, resources, config),
        *_memory(found, resources),
    ]
    return "\n".join(lines)


def best_use_text(use: BestUse, resources: Resources, config: PlanConfig, *, command: Sequence[str]) -> str:
    """Format the best use of the hours."""
    chosen = use.chosen
    lines = [
        f"{config.hours:g} hours on {described(resources)}, in {chosen.training.precision}:",
        "",
        *wrapped("text", tokens_of_text(resources)),
        "",
        *aligned([_SIZE_HEAD, *(_size_row(one, use) for one in use.candidates)]),
        "",
        *(line for remark in _remarks(use, config) for line in wrapped("", remark)),
        "",
        *_hours_and_money(chosen.forecast, resources, config),
        *_memory(chosen.forecast, resources),
        "",
        "To take it:",
        *command,
    ]
    return "\n".join(lines)


def as_data(found: Forecast) -> dict[str, Any]:
    """Convert a forecast to plain data, including its totals."""
    return {
        **dataclasses.asdict(found),
        "phases": [
            {**dataclasses.asdict(phase), "memory": {**dataclasses.asdict(phase.memory), "total": phase.memory.total}}
            for phase in found.phases
        ],
        "memory_bytes": found.fullest.memory.total,
        "fits": found.fits,
        "fitting_micro_batch_size": found.fitting_micro_batch_size,
    }


def candidate_as_data(candidate: Candidate) -> dict[str, Any]:
    """Convert a candidate to plain data."""
    training = candidate.training
    return {
        "size": candidate.size,
        "phases": [dataclasses.asdict(phase) for phase in training.phases],
        "learning_rate": candidate.learning_rate,
        "num_warmup_steps": candidate.num_warmup_steps,
        "micro_batch_size": training.runtime.micro_batch_size,
        "loss_by_the_law": candidate.loss,
        "tokens_per_parameter": candidate.tokens_per_parameter,
        "text_runs_out": candidate.text_runs_out,
        "forecast": as_data(candidate.forecast),
    }


def money(hours: float, resources: Resources, config: PlanConfig) -> float | None:
    """Return the cost of the hours on all devices; None without a price."""
    return None if config.price_per_hour is None else hours * resources.num_devices * config.price_per_hour


def described(resources: Resources) -> str:
    """Return number and name of the devices as text."""
    return f"{resources.num_devices} x {resources.hardware.title}"


def tokens_of_text(resources: Resources) -> str:
    """Return the size of the text and its source as text."""
    text = resources.text
    return text.basis if text.tokens is None else f"{three_digits(text.tokens)} tokens to train on ({text.basis})"


def wrapped(label: str, text: str) -> list[str]:
    """Wrap a text into lines, with a label in a column to its left."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=label.ljust(_LABEL),
        subsequent_indent=" " * _LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows as columns: the first one to the left, the others to the right.

    >>> aligned([["size", "hours"], ["tiny", "1.5"]])
    ['size  hours', 'tiny    1.5']
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) if column else cell.ljust(width)
                  for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]  # fmt: skip


def _phase_table(found: Forecast, resources: Resources) -> Iterator[str]:
    head = ["phase", "steps", "length", "batch", "tokens", "epochs", "FLOP", "tokens/s", "time"]
    rows = [
        [str(number), f"{phase.steps:,}", str(phase.max_length), str(phase.global_batch_size), *_amounts(phase)]
        for number, phase in enumerate(found.phases, start=1)
    ]
    together = ["all", f"{found.steps:,}", "", "", *_amounts(found)]
    yield from aligned([head, *rows, *([together] if len(rows) > 1 else [])])
    uncounted = sorted({one.max_length for one in found.phases} - resources.text.lengths.keys())
    if uncounted:
        lengths = ", ".join(map(str, uncounted))
        yield f"Tokens of length {lengths}: at most; no examples of it have been counted (dvc repro examples)."


def _amounts(found: Forecast | PhaseForecast) -> list[str]:
    """Return tokens, epochs, FLOPs, speed and time as text."""
    amounts = [three_digits(found.tokens), _passes(found.epochs), f"{found.flops:.3g}"]
    return [*amounts, three_digits(found.tokens_per_s), rough_duration(found.hours)]


def _hours_and_money(found: Forecast, resources: Resources, config: PlanConfig) -> Iterator[str]:
    best, worst = found.hours_at_best, found.hours_at_worst
    yield from wrapped(
        "time",
        f"{rough_duration(found.hours)}, between {rough_duration(best)} and {rough_duration(worst)}, for pretraining "
        "alone: preparing the text, fine-tuning and export come on top",
    )
    for basis in dict.fromkeys(phase.rate.basis for phase in found.phases):
        yield from wrapped("", basis)
    if any(phase.launches_take_longest for phase in found.phases):
        yield from wrapped(
            "", "Steps are so small that starting them takes longest: a larger batch costs no more time."
        )
    costs = [money(hours, resources, config) for hours in (found.hours, best, worst)]
    if None not in costs:
        middle, low, high = (f"{cost:,.2f}" for cost in costs)
        each = f"{config.price_per_hour:g} an hour" + (" for each device" if resources.num_devices > 1 else "")
        yield from wrapped("money", f"{middle}, between {low} and {high}, at {each}")


def _memory(found: Forecast, resources: Resources) -> Iterator[str]:
    fullest = found.fullest
    titles = {"logits": "scores of the masked positions"}
    parts = {titles.get(name, name): size for name, size in dataclasses.asdict(fullest.memory).items()}
    yield from wrapped(
        "memory",
        f"{_gigabytes(fullest.memory.total)} ± 25 % of the {_gigabytes(found.usable_bytes)} that "
        f"{resources.hardware.title} has for tensors, with {fullest.micro_batch_size} sequences of "
        f"{fullest.max_length} at once: " + ", ".join(f"{name} {_gigabytes(size)}" for name, size in parts.items()),
    )
    if not found.fits:
        advice = "Not even one sequence at once would. Take a smaller model or a larger device."
        if found.fitting_micro_batch_size is not None:
            size = found.fitting_micro_batch_size
            advice = f"It does with runtime.micro_batch_size={size}, which changes no result."
        yield from wrapped("", f"IT DOES NOT FIT. {advice}")


_SIZE_HEAD = [
    "  size", "parameters", "in layers", "tokens/s", "tokens", "epochs", "targets/param.", "batch", "steps", "lr",
    "time", "memory", "loss",
]  # fmt: skip


def _size_row(one: Candidate, use: BestUse) -> list[str]:
    found = one.forecast
    lowest = min(each.loss for each in use.candidates if each.forecast.fits)
    batches = "+".join(dict.fromkeys(str(phase.global_batch_size) for phase in found.phases))
    return [
        f"{'>' if one is use.chosen else ' '} {one.size}",
        three_digits(found.parameters),
        three_digits(found.encoder_parameters),
        three_digits(found.tokens_per_s),
        three_digits(found.tokens),
        _passes(found.epochs),
        f"{one.targets_per_parameter:.3g}",
        batches,
        f"{found.steps:,}",
        f"{one.learning_rate:g}",
        rough_duration(found.hours),
        _gigabytes(found.fullest.memory.total) if found.fits else "too much",
        f"{one.loss / lowest - 1:+.1%}",
    ]


def _remarks(use: BestUse, config: PlanConfig) -> Iterator[str]:
    chosen = use.chosen
    mask_prob = chosen.training.mask_prob
    yield (
        "> is the size to take by the rule of decoders: the lowest loss by the law of arXiv 2305.16264 (that of arXiv "
        f"2203.15556, some {DECODER_TOKENS_PER_PARAMETER:g} tokens per parameter, where repeated text is worth less). "
        f"Here a token counts when it is a target, so these are {decoder_rule(mask_prob):.0f} tokens of text for each "
        f"parameter of the layers. At most {use.max_epochs:.3g} passes over the text (plan.max_epochs); after "
        f"{4 / mask_prob:.3g} every token has been a target four times. Batch and rate by arXiv 2401.02954, section "
        "3.1, half its rate because BERT's norms come after the layers."
    )
    yield _encoder_rule(use)
    if chosen.text_runs_out:
        yield (
            f"The text is used up after {rough_duration(chosen.forecast.hours)} of the "
            f"{rough_duration(config.hours or 0)}: more passes would teach next to nothing, more text would."
        )
    if chosen.forecast.epochs is None:
        yield "How much text there is is unknown; this plan takes it to be enough."
    if config.lengths is None:
        lengths = ", ".join(str(length) for length in sorted({one.max_length for one in chosen.forecast.phases}))
        yield f"Sequences of {lengths} tokens; choose others with plan.lengths=[128,512]."


def _encoder_rule(use: BestUse) -> str:
    """Describe the rule for encoders and the sizes that satisfy it."""
    low, high = encoder_rule()
    ratios = {one.size: one.tokens_per_parameter for one in use.candidates}
    within = [f"{size} ({ratio:,.0f})" for size, ratio in ratios.items() if low <= ratio <= high]
    chosen = f"{use.chosen.size} has {ratios[use.chosen.size]:,.0f}"
    named = f"Within it: {', '.join(within)}." if within else "No size is within it."
    return (
        f"The rule of encoders (Dervishi et al., EMNLP 2025, abstract): 10 to 100 times the tokens per parameter of "
        f"decoders, that is {low:,.0f} to {high:,.0f} tokens of text for each. {chosen}. {named} The paper's abstract "
        "gives no more than this range, so it chooses nothing here; it favours a smaller model on more text."
    )


def _passes(epochs: float | None) -> str:
    return "?" if epochs is None else f"{epochs:.3g}" if epochs < 1000 else f"{epochs:,.0f}"


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size < 1e10 else f"{size / 1e9:.1f} GB"
