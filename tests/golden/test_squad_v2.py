"""Answers and the no-answer threshold are scored and found as SQuAD's official script, version 2.0, does it.

`squad_v2.jsonl` has questions, at random and corners, and what the script itself printed for each case:
`python tests/golden/test_squad_v2.py evaluate-v2.0.py` runs it again. The argument is the script as it stands at
https://rajpurkar.github.io/SQuAD-explorer.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import finished_tasks
from bertline.foundation.files import read_json_lines
from bertline.kinds.question_answering import NO_ANSWER_THRESHOLD, AnswerPredictions, QuestionAnswering
from bertline.tasks.metrics.answers import normalised
from bertline.tasks.stored_rows import QuestionRows

GOLDEN = Path(__file__).with_name("squad_v2.jsonl")
CASES: list[dict[str, Any]] = read_json_lines(GOLDEN)
"""Questions are right answers (none where there is none), what is predicted, and the no-answer score."""
NAMES = {"exact": "exact_match", "f1": "f1"}
GROUPS = {"": "", "HasAns_": "has_answer_", "NoAns_": "no_answer_"}


def kind(metric: str) -> QuestionAnswering:
    config = finished_tasks.KINDS["question_answering"]()[0]
    return QuestionAnswering(dataclasses.replace(config, metric=metric), ())


def given(case: dict[str, Any]) -> tuple[QuestionRows, AnswerPredictions]:
    gold, texts, margins = (list(column) for column in zip(*case["questions"], strict=True))
    ids, nothing = [str(number) for number in range(len(gold))], np.zeros(len(gold))
    rows = QuestionRows(ids, ids, texts, texts, gold, [[0] * len(answers) for answers in gold])
    return rows, AnswerPredictions(texts, nothing.astype(np.int64), nothing, np.array(margins), nothing)


def mean_score(metric: str, case: dict[str, Any], threshold: float) -> float:
    rows, predictions = given(case)
    of_kind = kind(metric)
    return of_kind.scores(of_kind.statistics(rows, predictions, {NO_ANSWER_THRESHOLD: threshold}))[metric]


@pytest.mark.parametrize("case", CASES)
def test_scores_are_the_official_ones(case: dict[str, Any]) -> None:
    rows, predictions = given(case)
    of_kind = kind("f1")
    statistics = of_kind.statistics(rows, predictions, {NO_ANSWER_THRESHOLD: case["threshold"]})
    found, official = of_kind.scores(statistics), case["official"]
    expected = {
        f"{group}{name}": official[f"{theirs}{score}"] / 100
        for theirs, group in GROUPS.items()
        for score, name in NAMES.items()
        # Groups are told apart only where there are questions without an answer.
        if f"{theirs}{score}" in official and (not theirs or "NoAns_f1" in official)
    }
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("score", NAMES)
@pytest.mark.parametrize("case", [case for case in CASES if "NoAns_f1" in case["official"]])
def test_the_threshold_is_the_official_one_but_for_its_slips(case: dict[str, Any], score: str) -> None:
    metric, official = NAMES[score], case["official"]
    found = kind(metric).calibrate(*given(case))[NO_ANSWER_THRESHOLD]
    theirs, promised = official[f"best_{score}_thresh"], official[f"best_{score}"] / 100
    # `best_no_answer_threshold` names what differs; no threshold of theirs is ever better than ours.
    assert mean_score(metric, case, found) >= mean_score(metric, case, theirs) - 1e-9
    scores = [margin for _, _, margin in case["questions"]]
    ties = len(set(scores)) < len(scores)
    never = found < min(scores)
    counted_wrong = any(not gold and text and not normalised(text) for gold, text, _ in case["questions"])
    if not ties and not counted_wrong:
        assert mean_score(metric, case, found) == pytest.approx(promised, abs=1e-9)
        assert theirs == 0.0 if never else found == theirs


def official(script: Path, case: dict[str, Any]) -> dict[str, Any]:
    """What the script prints."""
    gold, predicted, scores = (dict(enumerate(column)) for column in zip(*case["questions"], strict=True))
    questions = [{"id": str(number), "answers": [{"text": text} for text in gold[number]]} for number in gold]
    files = {"data": {"data": [{"paragraphs": [{"qas": questions}]}]}, "predictions": predicted, "no_answer": scores}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_text(json.dumps(content))
        options = ["--na-prob-file", "no_answer", f"--na-prob-thresh={case['threshold']}"]
        command = [sys.executable, str(script.resolve()), "data", "predictions", *options]
        printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    return json.loads(printed)


if __name__ == "__main__":
    cases = [case | {"official": official(Path(sys.argv[1]), case)} for case in CASES]
    GOLDEN.write_text("".join(f"{json.dumps(case, ensure_ascii=False)}\n" for case in cases), encoding="utf-8")
