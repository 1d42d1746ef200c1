import copy
import dataclasses
import re
from typing import Any

import pytest

from bertline.evaluation.facts import Facts, PipelineFolders, read_facts
from bertline.evaluation.html import Strong, table
from bertline.evaluation.overview_section import summary


def with_conclusion(facts: Facts, **conclusion: Any) -> Facts:
    """The same tasks, with other words on who wins in the first one."""
    first = copy.deepcopy(facts.tasks[0])
    first.result["conclusion"] |= conclusion
    return dataclasses.replace(facts, tasks=[first, *facts.tasks[1:]])


def cells(html: str) -> list[str]:
    row = html.split("<tbody><tr>")[1].split("</tr>")[0].replace("\u202f", " ")
    return re.findall(r"<td[^>]*>(.*?)</td>", row)


def test_a_column_that_is_empty_everywhere_is_left_out() -> None:
    shown = table(["a", "b", "c"], [["1", "–", ""], ["2", "", "x"]])
    assert re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", shown) == ["a", "c", "1", "", "2", "x"]
    assert "<th>a</th><th>b</th>" in table(["a", "b"], [])


def test_bold_text_is_escaped_too() -> None:
    assert '<td data-head="&quot;a"><b>&lt;i&gt;</b></td>' in table(['"a'], [[Strong("<i>")]])


@pytest.mark.parametrize(
    ("kind", "more"), [(None, ""), ("cooccurrence", " and word embeddings of co-occurrences in its text")]
)
def test_what_the_weights_started_from_is_said(whole_pipeline: PipelineFolders, kind: str | None, more: str) -> None:
    facts = read_facts(whole_pipeline, "title")
    facts.params["pretrain"] |= {"start_from": None, "initial_embeddings": kind}
    assert f"was trained from random weights{more} for" in summary(facts, {})


@pytest.mark.parametrize(
    ("verdict", "bold", "says"),
    [
        ("better", "0.420 ± 0.016", "this encoder"),
        ("worse", "0.320 (TF-IDF, logistic regression)", "the opponent"),
        ("not shown", None, "not clear"),
        (None, None, "not known"),
    ],
)
def test_the_winner_is_bold_and_the_strongest_opponent_named(
    whole_pipeline: PipelineFolders, verdict: str | None, bold: str | None, says: str
) -> None:
    found = {} if verdict is None else {"verdict": verdict}
    facts = with_conclusion(read_facts(whole_pipeline, "title"), encoder=found)
    row = cells(summary(facts, {}))
    assert [cell.removeprefix("<b>").removesuffix("</b>") for cell in row if "<b>" in cell] == ([bold] if bold else [])
    assert any("TF-IDF, logistic regression" in cell for cell in row)
    assert row[-1] == says


def test_the_combination_wins_where_only_it_does(whole_pipeline: PipelineFolders) -> None:
    facts = read_facts(whole_pipeline, "title")
    facts = dataclasses.replace(facts, tasks=[*filter(lambda task: task.name == "search", facts.tasks), *facts.tasks])
    said = with_conclusion(facts, encoder={"verdict": "worse"}, combined={"verdict": "better"})
    row = cells(summary(said, {}))
    assert "<b>0.470 ± 0.016</b>" in row and row[-1] == "alone: the opponent; combined: this encoder"


def test_the_winner_is_told_alone_and_combined_where_only_one_is_clear(whole_pipeline: PipelineFolders) -> None:
    facts = read_facts(whole_pipeline, "title")
    said = with_conclusion(facts, encoder={"verdict": "worse"}, combined={"verdict": "not shown"})
    row = cells(summary(said, {}))
    assert not any("<b>" in cell for cell in row)
    assert row[-1] == "alone: the opponent; combined: not clear"


def test_few_tasks_have_tiles_that_name_the_strongest_opponent(pipeline: PipelineFolders) -> None:
    assert "strongest opponent: TF-IDF, logistic regression 0.320" in summary(read_facts(pipeline, "title"), {})
