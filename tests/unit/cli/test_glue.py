from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertline.cli.glue import GLUE, found_sets, glue_table, task_of
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_json
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
    (found,) = found_sets(tmp_path, None)
    assert (found["name"], found["files"]) == (name, GLUE[name]["layouts"][number]["files"])
    composed = {"tasks": {name: shipped_task(name)}, "model": {"max_position_embeddings": 128}}
    checked = validated(name, task_of(found, composed, "an/encoder"))
    source: Any = checked.source
    assert {source.train_file, source.dev_file, source.test_file, *source.extra_tests.values()} - {None} <= set(
        found["files"]
    )
    assert (checked.space, checked.num_trials, checked.label_efficiency_rows) == ({}, None, ())


def test_the_download_of_glue_is_found_whole_and_small_sets_come_first(tmp_path: Path) -> None:
    for name in ("CoLA", "SST-2", "MRPC", "QQP", "STS-B", "QNLI", "RTE", "WNLI"):
        put(tmp_path, *(f"{name}/{split}.tsv" for split in ("train", "dev", "test")))
    put(tmp_path, *(f"MNLI/{name}.tsv" for name in ("train", "dev_matched", "dev_mismatched")))
    assert [one["name"] for one in found_sets(tmp_path, None)] == [*GLUE]
    assert [one["name"] for one in found_sets(tmp_path, ["sst2", "rte"])] == ["rte", "sst2"]


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


def put_result(data: Path, name: str, scores: dict[str, dict[str, float]]) -> dict[str, Any]:
    """A set with its layout and the path of a result."""
    put_layout(data, name, 0)
    (found,) = found_sets(data, [name])
    means = {split: {key: {"mean": mean, "std": 0.01} for key, mean in one.items()} for split, one in scores.items()}
    result = {
        "arms": {"encoder": {"scores": means}},
        "baselines": {"majority": {"scores": {split: dict.fromkeys(one, 0.5) for split, one in scores.items()}}},
        "conclusion": {"opponent": "majority"},
        "rows": {"train": 1000, "dev": 100, **dict.fromkeys(scores, 200)},
    }
    write_json(data / f"{name}.json", result)
    return {**found, "result": str(data / f"{name}.json")}


def test_the_table_has_a_line_for_each_set_with_all_its_scores(tmp_path: Path) -> None:
    sets = [
        put_result(tmp_path, "mrpc", {"test": {"f1": 0.9, "accuracy": 0.8}}),
        put_result(tmp_path, "mnli", {"test": {"accuracy": 0.8}, "test_mismatched": {"accuracy": 0.7}}),
    ]
    table = glue_table(sets, encoder="an encoder")
    assert "| MRPC | f1 / accuracy | 0.900 ± 0.010 / 0.800 ± 0.010 | 0.500 / 0.500 | 1,000 | 200 |" in table
    assert "| MNLI | accuracy / accuracy (mismatched) |" in table
    assert "MRPC: scored on the test of the original release" in table
    assert {line.count(" | ") for line in table.splitlines() if line.startswith("|")} == {5}
