import dataclasses
import json
import re
from typing import Any

import pytest

from bertline.evaluation.facts import Facts, PipelineFolders, read_facts
from bertline.evaluation.pretraining_section import (
    data_section,
    health,
    length_changes,
    pretraining_charts,
    pretraining_section,
)

PHASES = [
    {"steps": 1000, "max_length": 32},
    {"steps": 800, "max_length": 32},
    {"steps": 1500, "max_length": 64},
    {"steps": 700, "max_length": 128},
]


@pytest.fixture
def facts(pipeline: PipelineFolders) -> Facts:
    path = pipeline.pretrain / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["metrics"] |= {"optim/lr": row["step"] / 1e6, "optim/grad_norm": 2.0, "perf/tokens_per_s": 9e4}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    params = {**pipeline.params, "optimizer": {"max_grad_norm": 1.0}}
    params["pretrain"] = {**params["pretrain"], "phases": PHASES}
    return read_facts(dataclasses.replace(pipeline, params=params), "title")


def test_learning_rate_gradient_norm_and_throughput_are_drawn(facts: Facts) -> None:
    charts = pretraining_charts(facts)
    assert {"learning_rate", "grad_norm", "throughput"} <= charts.keys()
    assert ">clipped above<" in charts["grad_norm"]
    page = pretraining_section(facts, charts)
    for said in ("The learning rate of the schedule", "The norm of the gradient", "Real tokens per second"):
        assert said in page


def test_metrics_that_were_not_recorded_are_not_drawn(pipeline: PipelineFolders) -> None:
    assert not {"learning_rate", "grad_norm", "throughput"} & pretraining_charts(read_facts(pipeline, "title")).keys()


def test_a_change_of_the_sequence_length_is_marked_in_every_curve(facts: Facts) -> None:
    # The first two phases have one length; the last one begins where training ended, after 3,300 steps.
    assert length_changes(facts) == [(1800.0, "length 64")]
    for chart in pretraining_charts(facts).values():
        assert chart.count('class="mark"') == 1
        assert re.search(r'class="tick"[^>]*>length 64</text>', chart)
    page = pretraining_section(facts, pretraining_charts(facts))
    assert "The sequence length changes to 64 tokens after step 1,800; dotted lines mark it." in page


def test_a_training_of_one_length_has_no_mark(facts: Facts) -> None:
    params: dict[str, Any] = {**facts.params, "pretrain": {**facts.params["pretrain"], "phases": PHASES[:2]}}
    alike = dataclasses.replace(facts, params=params)
    assert length_changes(alike) == []
    assert "sequence length changes" not in pretraining_section(alike, pretraining_charts(alike))


def test_the_health_verdict_is_there_with_and_without_alarms(facts: Facts) -> None:
    assert "Health: no alarm." in pretraining_section(facts, pretraining_charts(facts))
    alarm = {"kind": "spike", "step": 1240, "message": "the loss rose", "advice": "Lower it."}
    alarmed = health(dataclasses.replace(facts, alarms=[alarm, alarm]))
    assert "Health: 2 alarms." in alarmed and "Lower it." in alarmed and "no alarm" not in alarmed


def test_what_the_surface_of_pairs_tells_of_their_label_is_said(facts: Facts, pipeline: PipelineFolders) -> None:
    assert "Final marks" not in data_section(facts, pipeline, {}, 1)
    facts.examples["lengths"]["64"]["train"] = {"surface_accuracy": 0.538}
    assert "tell random pairs from true ones in 53.8 % at length 64; 50 % is chance" in data_section(
        facts, pipeline, {}, 1
    )
