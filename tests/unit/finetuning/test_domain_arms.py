"""The arms of benchmarks/domain.py: the lines with titles, and which arm is chosen."""

import sys
from pathlib import Path

from bertline.tasks.stored_rows import Documents

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import domain
import domain_arms


def test_a_title_stands_before_each_part_of_its_text():
    long = " ".join(f"w{number}" for number in range(130))
    documents = Documents(ids=["1", "2", "3"], titles=["A wing .", "On", ""], texts=[f"A wing . {long}", "few", "bare"])
    lines = [text.split("\n") for text in domain_arms.titled(documents)]
    assert [title for title, _ in lines] == ["A wing ."] * 3 + ["On"]
    assert " ".join(part for _, part in lines[:3]) == long
    assert lines[3] == ["On", "few"]


def test_what_is_only_reported_chooses_no_arm():
    dev = {
        "untouched": {"docs_match": 0.5, "docs_search": 0.5},
        "x": {"docs_match": 0.6, "docs_search": 0.1},
        "y": {"docs_match": 0.55, "docs_search": 0.9},
    }
    assert domain.chosen_arm(dev) == "x"


def test_an_arm_that_loses_on_a_task_is_skipped():
    dev = {"untouched": {"a": 0.5, "b": 0.5}, "loses": {"a": 0.7, "b": 0.494}, "safe": {"a": 0.55, "b": 0.496}}
    assert domain.chosen_arm(dev) == "safe"
    assert domain.chosen_arm({name: dev[name] for name in ("untouched", "loses")}) == "loses"  # if all lose
