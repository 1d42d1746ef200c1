from pathlib import Path
from typing import Any

import pytest

from bertline.evaluation.data_section import sample_documents
from bertline.evaluation.facts import TaskFacts
from bertline.evaluation.folders import LineFolders
from bertline.evaluation.task_section import task_charts, task_section, varied
from bertline.foundation.files import read_json


@pytest.fixture
def result(line: LineFolders) -> dict[str, Any]:
    return read_json(line.sweeps["library"] / "result.json")


def page(result: dict[str, Any]) -> str:
    task = TaskFacts(name="library", manifest={}, result=result)
    return task_section(task, task_charts(task))


def test_only_hyperparameters_that_took_several_numbers_are_drawn(result: dict[str, Any]) -> None:
    assert varied(result) == ["batch_size", "lr"]


def test_a_difference_within_the_spread_is_not_called_a_win(result: dict[str, Any]) -> None:
    assert "Pretraining helps here" in page(result)
    result["comparison"] = {"difference": 0.01, "threshold": 0.05, "beats_random_weights": False}
    said = page(result)
    assert "no clear difference" in said
    assert "is not more than the 0.050" in said


def test_one_seed_proves_nothing(result: dict[str, Any]) -> None:
    for arm in result["arms"].values():
        arm["seeds"] = arm["seeds"][:1]
    assert "One seed has no spread" in page(result)


def test_a_trial_that_failed_before_its_first_score_is_left_out(result: dict[str, Any]) -> None:
    for arm in result["arms"].values():
        for trial in arm["trials"]:
            trial["dev"] = None
    assert varied(result) == []
    assert "What the sweep tried" in page(result)


def test_sample_documents_are_held_out_and_the_same_each_time(line: LineFolders, tmp_path: Path) -> None:
    first = [document.id for document in sample_documents(line, 2)]
    assert first == [document.id for document in sample_documents(line, 2)]
    assert len(first) == 2
    assert all(name.startswith("validation.") for name in first)
