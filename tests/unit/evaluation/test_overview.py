import copy
import dataclasses
import re
from typing import Any

import pytest

from bertline.evaluation.facts import Facts, PipelineFolders, read_facts
from bertline.evaluation.overview_section import summary


def with_conclusion(facts: Facts, **conclusion: Any) -> Facts:
    """The same tasks, with other words on who wins in the first one."""
    first = copy.deepcopy(facts.tasks[0])
    first.result["conclusion"] |= conclusion
    return dataclasses.replace(facts, tasks=[first, *facts.tasks[1:]])


def cells(html: str) -> list[str]:
    row = html.split("<tbody><tr>")[1].split("</tr>")[0].replace("\u202f", " ")
    return re.findall(r"<td[^>]*>(.*?)</td>", row)


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
