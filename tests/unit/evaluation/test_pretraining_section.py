import dataclasses
import json

import pytest

from bertline.evaluation.facts import Facts, PipelineFolders, read_facts
from bertline.evaluation.pretraining_section import health, pretraining_charts, pretraining_section

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


def test_losses_and_accuracies_are_drawn_with_what_they_are_compared_with(facts: Facts) -> None:
    charts = pretraining_charts(facts)
    assert ">by frequency alone<" in charts["mlm_loss"]
    assert ">chance, next sentence right<" in charts["accuracy"] and ">blanks filled right<" in charts["accuracy"]
    captions = "blanks filled with exactly the right token, and of sentence pairs judged right (next sentence)."
    assert captions in pretraining_section(facts, charts)


def test_learning_rate_gradient_norm_and_throughput_are_drawn(facts: Facts) -> None:
    charts = pretraining_charts(facts)
    assert {"learning_rate", "grad_norm", "throughput"} <= charts.keys()
    assert ">clipped above<" in charts["grad_norm"]
    page = pretraining_section(facts, charts)
    for said in ("The learning rate of the schedule", "The norm of the gradient", "Real tokens per second"):
        assert said in page


def test_the_health_verdict_is_there_with_and_without_alarms(facts: Facts) -> None:
    assert "Health: no alarm." in pretraining_section(facts, pretraining_charts(facts))
    alarm = {"kind": "spike", "step": 1240, "message": "the loss rose", "advice": "Lower it."}
    alarmed = health(dataclasses.replace(facts, alarms=[alarm, alarm]))
    assert "Health: 2 alarms." in alarmed and "Lower it." in alarmed and "no alarm" not in alarmed
