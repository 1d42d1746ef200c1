"""What bertline relies on in DVC's run cache, which takes results of earlier runs over. See docs/howto/share.md."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

OF_GIT = {"cache": False}
COMMAND = "echo x >> log; cp source model; cp source figures"


def stage(**more: Any) -> None:
    one = {"cmd": COMMAND, "deps": ["source"], "outs": ["model"], **more}
    Path("source").write_text("1")
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": {"one": one}}), encoding="utf-8")


def repro(repo: Any, **options: Any) -> None:
    repo._reset()  # forget what was read, as a new command would
    repo.reproduce(**options)


def times_run() -> int:
    return len(Path("log").read_text().split())


def forget() -> None:
    """Outputs and the record of them are gone; the caches stay."""
    for path in ("model", "figures", "dvc.lock"):
        Path(path).unlink()


def entries() -> list[Path]:
    return [path for path in Path(".dvc/cache/runs").rglob("*") if path.is_file()]


@pytest.mark.parametrize("declared", ["metrics", "plots"])
def test_a_stage_is_restored_from_the_run_cache_if_what_it_leaves_in_git_is_a_metric_or_a_plot(project, declared):
    stage(**{declared: [{"figures": OF_GIT}]})
    repro(project)
    assert len(entries()) == 1
    forget()
    repro(project)
    assert times_run() == 1
    assert Path("model").read_text() == Path("figures").read_text() == "1"
    outputs = yaml.safe_load(Path("dvc.lock").read_text())["stages"]["one"]["outs"]
    assert [output["path"] for output in outputs] == ["figures", "model"]


def test_push_leaves_figures_out_that_an_entry_of_the_run_cache_needs_so_share_py_sends_them(project, tmp_path) -> None:
    stage(metrics=[{"figures": OF_GIT}], cmd=COMMAND.replace("cp source figures", "echo 7 > figures"))
    repro(project)
    project.push(run_cache=True)
    stored = [path for path in (tmp_path / "store/files").rglob("*") if path.is_file()]
    assert [path.read_text() for path in stored] == ["1"]  # with a DVC that sends both, share.py is not needed
    assert any((tmp_path / "store/runs").rglob("*"))

    # The public names of DVC's Python interface that share.py uses.
    (entry,) = entries()
    used = project.stage_cache.get_used_objs([(entry.parent.name, entry.name)])
    objects = set().union(*used.values())
    assert all(project.cache.local.exists(one.value) for one in objects)
    sent = project.cloud.push(objects, remote="store")
    assert len(sent.transferred) == 1 and not sent.failed

    forget()
    shutil.rmtree(".dvc/cache")
    with type(project)(".") as fresh:  # the other one remembers which folders of the cache there are
        fresh.fetch(run_cache=True)
        repro(fresh, pull=True)
    assert times_run() == 1
    assert Path("figures").read_text() == "7\n"
