"""What bertline relies on in DVC. A failure here says which part of `dvc.yaml` or of the recipes an upgrade touches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.run.provenance import md5_of_path


def stages(content: dict[str, Any], **more: Any) -> None:
    Path("dvc.yaml").write_text(yaml.safe_dump({**more, "stages": content}, sort_keys=False), encoding="utf-8")


def names_run(repo: Any) -> list[str]:
    repo._reset()  # forget what was read of dvc.yaml and params.yaml, as a new command would
    return [stage.addressing for stage in repo.reproduce()]


def log() -> list[str]:
    return Path("log").read_text().split()


def test_outputs_are_deleted_at_start_so_work_in_progress_lives_in_runs(project: Any) -> None:
    for name, outs in (("plain", ["out"]), ("kept", [{"out": {"persist": True, "cache": False}}])):
        Path("out").write_text("before")
        stages({name: {"cmd": f"if [ -e out ]; then echo {name}-there >> log; fi; echo x >> out", "outs": outs}})
        names_run(project)
    assert log() == ["kept-there"]


def test_a_stage_knows_its_name_from_dvc_stage_so_recipes_can_tell_dvc_from_a_hand(project: Any) -> None:
    stages(
        {"one": {"cmd": "echo $DVC_STAGE > log"}, "two": {"foreach": ["x"], "do": {"cmd": "echo $DVC_STAGE >> log"}}}
    )
    project.reproduce(["one"])
    project.reproduce(["two@x"])
    assert log() == ["one", "two@x"]


def test_stages_run_in_the_order_of_dvc_yaml_so_a_stage_knows_its_place_in_the_whole(project: Any) -> None:
    made = {name: {"cmd": f"echo {name} > {name}", "outs": [name]} for name in ("z", "b", "a")}
    stages(
        {**made, "each": {"foreach": ["y", "x"], "do": {"cmd": "echo ${item} > of-${item}", "outs": ["of-${item}"]}}}
    )
    assert names_run(project) == ["z", "b", "a", "each@y", "each@x"]


def test_only_the_listed_params_matter_so_runtime_and_tracking_rerun_nothing(project: Any) -> None:
    stages({"one": {"cmd": "echo a > out", "params": ["model"], "outs": ["out"]}})
    Path("params.yaml").write_text("model: {size: 1}\nruntime: {workers: 1}\n")
    assert names_run(project) == ["one"]
    Path("params.yaml").write_text("model: {size: 1}\nruntime: {workers: 8}\n")
    assert names_run(project) == []
    Path("params.yaml").write_text("model: {size: 2}\nruntime: {workers: 8}\n")
    assert names_run(project) == ["one"]


def test_a_folder_dependency_counts_pycache_unless_dvcignore_lists_it(project: Any) -> None:
    Path("src/__pycache__").mkdir(parents=True)
    Path("src/a.py").write_text("a")
    stages({"one": {"cmd": "echo a > out", "deps": ["src"], "outs": ["out"]}})
    names_run(project)
    Path("src/__pycache__/a.pyc").write_text("compiled")
    assert names_run(project) == ["one"]
    Path(".dvcignore").write_text("__pycache__/\n")
    assert names_run(project) == ["one"]  # the ignored folder leaves the recorded hash once
    Path("src/__pycache__/b.pyc").write_text("compiled")
    assert names_run(project) == []


def test_an_empty_list_of_tasks_is_a_pipeline_without_tasks(project: Any) -> None:
    Path("params.yaml").write_text("tasks: {}\n")
    content = {"foreach": "${tasks}", "do": {"cmd": "echo ${key} > out_${key}", "outs": ["out_${key}"]}}
    stages({"sweep": content, "one": {"cmd": "echo a > out", "outs": ["out"]}})
    assert names_run(project) == ["one"]


def test_stages_made_for_the_keys_of_params_yaml_depend_on_their_own_part_of_it_alone(project: Any) -> None:
    content = {"foreach": "${tasks}", "do": {"cmd": "echo ${key} > out_${key}", "params": ["tasks.${key}"]}}
    stages({"sweep": {**content, "do": {**content["do"], "outs": ["out_${key}"]}}})
    for value, run in (("1", ["sweep@a", "sweep@b"]), ("2", ["sweep@b"])):
        Path("params.yaml").write_text(f"tasks: {{a: {{x: '${{y}}'}}, b: {{x: {value}}}}}\n")
        assert names_run(project) == run


@pytest.mark.parametrize(("name", "stale"), [("size", True), ("nfiles", True), ("hidden_size", False)])
def test_the_run_cache_ignores_parameters_called_size_or_nfiles_so_no_field_may_be_called_so(project, name, stale):
    # DVC leaves these two keys out of the run cache's key wherever they stand: it takes them for facts about files.
    for value in (1, 2):
        stages({"one": {"cmd": "cp params.yaml out", "params": ["model"], "outs": ["out"]}})
        Path("params.yaml").write_text(f"model: {{{name}: {value}}}\n")
        names_run(project)
    assert yaml.safe_load(Path("out").read_text()) == {"model": {name: 1 if stale else 2}}


def test_a_stage_that_always_runs_re_runs_only_what_depends_on_a_file_that_it_changed(project: Any) -> None:
    write = "mkdir -p seen; cp a seen/a; cp b seen/b@x"
    content: dict[str, Any] = {
        "configure": {"cmd": "cp conf params", "deps": ["conf"], "outs": [{"params": {"cache": False}}]},
        "seen": {"cmd": write, "always_changed": True, "deps": ["params"], "outs": [{"seen": {"cache": False}}]},
        "one": {"cmd": "cp seen/a one", "deps": ["seen/a"], "outs": ["one"]},
        "two": {"foreach": ["x"], "do": {"cmd": "cp seen/b@x two", "deps": ["seen/b@${item}"], "outs": ["two"]}},
    }
    for name in ("conf", "a", "b"):
        Path(name).write_text("1")
    stages(content)
    assert names_run(project) == ["configure", "seen", "one", "two@x"]
    assert names_run(project) == ["seen"]
    assert set(project.status()) == {"seen"}
    Path("b").write_text("2")
    assert names_run(project) == ["seen", "two@x"]
    Path("conf").write_text("2")
    assert names_run(project) == ["configure", "seen"]


def test_the_digests_of_the_lock_are_md5_of_a_file_and_of_the_list_of_a_folder_s_files(project: Any) -> None:
    command = "mkdir -p out/b; echo 1 > out/b/c; echo 2 > out/b.d; echo 3 > out/ä; echo 4 > file"
    stages({"one": {"cmd": command, "outs": ["out", "file"]}})
    project.reproduce()
    outs = yaml.safe_load(Path("dvc.lock").read_text())["stages"]["one"]["outs"]
    assert {each["path"]: each["md5"] for each in outs} == {n: md5_of_path(Path(n)) for n in ("out", "file")}
