import dataclasses
import json

import pytest

from bertline.evaluation.build import report_page
from bertline.evaluation.charts import pretraining_charts
from bertline.evaluation.facts import Facts, PipelineFolders, read_facts
from evaluation_inputs import HOSTILE


@pytest.fixture
def facts(pipeline: PipelineFolders) -> Facts:
    path = pipeline.pretrain / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["metrics"] |= {"optim/lr": row["step"] / 1e6, "optim/grad_norm": 2.0, "perf/tokens_per_s": 9e4}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    params = {**pipeline.params, "optimizer": {"max_grad_norm": 1.0}}
    return read_facts(dataclasses.replace(pipeline, params=params), "title")


def test_what_attention_heads_find_is_drawn_with_the_offset_and_only_if_it_was_measured(facts: Facts) -> None:
    assert "heads" not in {one.name for one in pretraining_charts(facts)}
    facts.rows[0].metrics.update({f"probe/heads/{name}": 0.4 for name in ("mean", "offset", "obj", "cc")})
    chart = next(one.chart for one in pretraining_charts(facts) if one.name == "heads")
    names = ("mean of all", "mean, fixed distances", "obj")
    assert all(f">{name}<" in chart.svg for name in names) and ">cc<" not in chart.svg


def test_alarms_stand_in_the_report_with_their_advice(facts: Facts) -> None:
    def page(alarms: list[dict[str, object]]) -> str:
        changed = dataclasses.replace(facts, alarms=alarms, tasks=[])
        return report_page(changed, [], [])

    assert "Health: no alarm." in page([])
    alarm = {"kind": "spike", "step": 1240, "message": f"the loss rose {HOSTILE}", "advice": "Lower optimizer.lr."}
    alarmed = page([alarm] * 32)
    assert HOSTILE not in alarmed and "no alarm" not in alarmed
    for said in (
        "Health: 32 alarms.", "1,240", "the loss rose &lt;script&gt;", "Lower optimizer.lr.",
        "And 12 more, in health.jsonl.",
    ):  # fmt: skip
        assert said in alarmed
