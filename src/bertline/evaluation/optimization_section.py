"""How pretraining went: learning rate, gradient norm and throughput over the steps, and whether an alarm was raised."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from bertline.evaluation.charts import Series, line_chart
from bertline.evaluation.facts import Facts
from bertline.evaluation.formatting import number_of
from bertline.evaluation.html import paragraph, table

_CHARTS = {
    "learning_rate": ("optim/lr", "learning rate", "The learning rate of the schedule: warm-up, then decay."),
    "grad_norm": ("optim/grad_norm", "gradient norm", "The norm of the gradient before it is clipped."),
    "throughput": ("perf/tokens_per_s", "tokens per second", "Real tokens per second of training, without padding."),
}
_CHECKED = "loss spikes, values that are not finite, vanishing and exploding gradients, metrics that stay at their "
_CHECKED += "baselines, and waiting for data"
_ALARMS = 20


def optimization_charts(facts: Facts) -> dict[str, str]:
    """Return the charts by file name; metrics that were not recorded have no chart."""
    clip = facts.params.get("optimizer", {}).get("max_grad_norm")
    return {
        name: line_chart(
            [Series(title, facts.curve(metric), "c0")],
            x_name="step",
            y_name=title,
            level=("clipped above", clip) if name == "grad_norm" and clip is not None else None,
            marks=length_changes(facts),
        )
        for name, (metric, title, _) in _CHARTS.items()
        if facts.curve(metric)
    }


def optimization_captions() -> dict[str, str]:
    """Return the captions of the charts by file name."""
    return {name: caption for name, (_, _, caption) in _CHARTS.items()}


def length_changes(facts: Facts) -> list[tuple[float, str]]:
    """Return the steps after which the sequence length changes, each with the new length; curves may jump there."""
    phases = facts.params.get("pretrain", {}).get("phases") or []
    ends = accumulate(phase["steps"] for phase in phases)
    return [
        (float(end), f"length {after['max_length']}")
        for end, before, after in zip(ends, phases, phases[1:], strict=False)
        if after["max_length"] != before["max_length"] and end < facts.training["steps"]
    ]


def health(facts: Facts) -> str:
    """Return the health verdict, and a table of alarms with advice if there were any."""
    if not facts.alarms:
        return paragraph(f"Health: no alarm. Training was watched for {_CHECKED}.", "verdict good")
    rows = [(f"{row['step']:,}", _what_happened(row), row["advice"]) for row in facts.alarms[:_ALARMS]]
    more = len(facts.alarms) - len(rows)
    rest = paragraph(f"And {more:,} more, in health.jsonl.") if more else ""
    said = paragraph(f"Health: {number_of(len(facts.alarms), 'alarm')}.", "verdict unsure")
    return f"{said}<h3>Alarms</h3>{table(('step', 'what happened', 'what to do'), rows)}{rest}"


def _what_happened(alarm: dict[str, Any]) -> str:
    if "rewound_to" not in alarm:
        return str(alarm["message"])
    target = "its start" if alarm["rewound_to"] is None else f"step {alarm['rewound_to']:,}"
    sequences = sum(jump["sequences"] for jump in alarm["skipped"])
    return f"{alarm['message']}; training rolled back to {target} and skipped {sequences:,} sequences"
