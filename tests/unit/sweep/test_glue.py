from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertline.foundation.errors import ConfigError
from bertline.sweep.glue import GLUE, found_sets, glue_average, glue_markdown, glue_row, task_of
from shipped_tasks import shipped_task, validated


def put(data: Path, *names: str) -> None:
    for name in names:
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).touch()


def put_layout(data: Path, name: str, number: int) -> None:
    layout = GLUE[name]["layouts"][number]
    put(data, *(f"{layout['folders'][0]}/{file}" for file in layout["files"]))


LAYOUTS = [(name, number) for name, one in GLUE.items() for number in range(len(one["layouts"]))]


@pytest.mark.parametrize(("name", "number"), LAYOUTS)
def test_each_layout_of_each_set_is_found_and_is_a_valid_task(tmp_path: Path, name: str, number: int) -> None:
    put_layout(tmp_path, name, number)
    (found,), absent = found_sets(tmp_path, None)
    assert (found.name, len(absent)) == (name, 8)
    assert found.layout is GLUE[name]["layouts"][number]
    checked = validated(name, task_of(found, shipped_task(name)))
    source: Any = checked.source
    assert {source.train_file, source.dev_file, source.test_file, *source.extra_tests.values()} - {None} <= set(
        found.layout["files"]
    )
    assert (checked.space, checked.num_trials, checked.label_efficiency_rows) == ({}, None, ())


def test_the_download_of_glue_is_found_whole_and_small_sets_come_first(tmp_path: Path) -> None:
    for name in ("CoLA", "SST-2", "MRPC", "QQP", "STS-B", "QNLI", "RTE", "WNLI"):
        put(tmp_path, *(f"{name}/{split}.tsv" for split in ("train", "dev", "test")))
    put(tmp_path, *(f"MNLI/{name}.tsv" for name in ("train", "dev_matched", "dev_mismatched")))
    found, absent = found_sets(tmp_path, None)
    assert [one.name for one in found] == [*GLUE]
    assert absent == []
    assert [one.name for one in found_sets(tmp_path, ["sst2", "rte"])[0]] == ["rte", "sst2"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (["sst3"], r"sets names 'sst3'; GLUE has wnli, rte"),
        (["rte"], r"does not have rte\. Looked for: RTE/\{train\.tsv,dev\.tsv\}"),
        (None, r"does not have wnli, rte, .*QNLI_share/\{dev_share\.tsv\}"),
    ],
)
def test_what_is_not_there_is_named_with_the_places_looked_at(
    tmp_path: Path, wanted: list[str] | None, said: str
) -> None:
    if wanted:
        put_layout(tmp_path, "wnli", 0)
    with pytest.raises(ConfigError, match=said):
        found_sets(tmp_path, wanted)


def outcome(
    tmp_path: Path, name: str, scores: dict[str, dict[str, float]], *, number: int = 0, num_diverged: int = 0
) -> dict[str, Any]:
    put_layout(tmp_path, name, number)
    found = next(one for one in found_sets(tmp_path, None)[0] if one.name == name)
    encoder = {
        "scores": {
            split: {key: {"mean": mean, "std": 0.01} for key, mean in one.items()} for split, one in scores.items()
        },
        "seeds": [{"time_s": 30.0, "dev": 0.6 + 0.1 * seed, "scores": scores} for seed in range(2)],
        "test_interval": [0.4, 0.7],
        "trials": [{"time_s": 60.0}, {"time_s": None}],
        "num_diverged": num_diverged,
    }
    trivial = {split: dict.fromkeys(one, 0.5) for split, one in scores.items()}
    baselines = {"majority": {"dev": 0.5, "scores": trivial}, "word_ngrams": {"dev": 0.6, "scores": trivial}}
    rows = {"train": 1000, "dev": 100, **dict.fromkeys(scores, 200)}
    result = {"arms": {"encoder": encoder}, "baselines": baselines, "rows": rows, "metric": "accuracy"}
    comparisons = {name: {"difference": 0.1} for name in (*baselines, "random_weights")}
    return glue_row(found, {**result, "comparisons": comparisons})


def test_a_set_with_two_metrics_or_two_tests_counts_once_in_the_average(tmp_path: Path) -> None:
    rows = [
        outcome(tmp_path, "wnli", {"test": {"accuracy": 0.5}}),
        outcome(tmp_path, "mrpc", {"test": {"f1": 0.9, "accuracy": 0.8}}),
        outcome(tmp_path, "mnli", {"test": {"accuracy": 0.8}, "test_mismatched": {"accuracy": 0.7}}),
    ]
    average = glue_average(rows)
    assert average["average"] == pytest.approx((0.5 + 0.85 + 0.75) / 3)
    assert average["without_wnli"] == pytest.approx((0.85 + 0.75) / 2)
    assert (rows[2]["test_rows"], rows[0]["minutes"]) == (400, 2.0)
    assert rows[0]["baselines"]["word_ngrams"] == {"dev": 0.6, "scores": {"test": {"accuracy": 0.5}}}
    assert (rows[0]["metric"], rows[0]["dev"], rows[0]["interval"]) == ("accuracy", [0.6, 0.7], [0.4, 0.7])
    assert rows[0]["comparisons"] == {"majority": {"difference": 0.1}, "word_ngrams": {"difference": 0.1}}
    assert [one["seeds"] for one in rows[1]["scores"]] == [[0.9, 0.9], [0.8, 0.8]]
    table = glue_markdown(rows, ["SST-2"], encoder="an encoder")
    assert "| MRPC | f1 / accuracy | 0.900 ± 0.010 / 0.800 ± 0.010 | 0.500 / 0.500 | 0.500 / 0.500 |" in table
    assert "| MNLI | accuracy / accuracy (mismatched) |" in table
    assert "| average of 3 |  | 0.700 (0.800 without WNLI) |" in table
    assert "MRPC: scored on the test of the original release." in table
    assert "Not there: SST-2." in table


def test_a_set_that_failed_is_said_and_left_out_of_the_average(tmp_path: Path) -> None:
    good = outcome(tmp_path, "rte", {"test": {"accuracy": 0.6}}, num_diverged=1)
    (found,), _ = found_sets(tmp_path, None)
    rows = [glue_row(found, None, "RTE/train.tsv:3: a | b"), good]
    assert glue_average(rows) == {"average": 0.6, "without_wnli": 0.6, "num_sets": 1}
    table = glue_markdown(rows, [], encoder="an encoder")
    assert "| RTE | failed | – |" in table
    assert "RTE failed: RTE/train.tsv:3: a \\| b" in table
    assert "- RTE: the mean is that of 2, as 1 more diverged." in table
    assert {line.count(" | ") for line in table.splitlines() if line.startswith("|")} == {7}
