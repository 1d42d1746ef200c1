"""Imports without garbage collection and without what Lightning does not use, by the library and by recipes."""

import gc
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bertline.foundation.importing import uncollected_imports
from fork_server import run_recipe

ROOT = Path(__file__).parents[4]
RECIPE = f"""
import gc, sys
sys.path.insert(0, {str(ROOT / "pipelines")!r})
import on_ctrl_c
print("while importing", gc.isenabled())
from composition import recipe
recipe(lambda composed: print("while running", gc.isenabled()), config="predict")()
"""


@pytest.fixture
def collector():
    """The collector, which is left as it was."""
    was_enabled = gc.isenabled()
    gc.enable()
    yield
    gc.unfreeze()
    if not was_enabled:
        gc.disable()


def test_nothing_is_collected_meanwhile_and_what_was_made_is_not_looked_at_afterwards(collector):
    gc.unfreeze()
    with uncollected_imports():
        assert not gc.isenabled()
        made = [object]
    assert gc.isenabled() and gc.is_tracked(made)
    assert not any(one is made for generation in range(3) for one in gc.get_objects(generation))


def test_a_failed_import_leaves_the_collector_as_it_was(collector):
    with pytest.raises(ModuleNotFoundError), uncollected_imports():
        import no_such_module  # noqa: F401
    assert gc.isenabled()
    gc.disable()
    with uncollected_imports():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize(("folder", "while_importing"), [("pipelines", False), ("scripts", True)])
def test_a_recipe_collects_nothing_until_it_runs_and_its_importers_are_left_alone(folder, while_importing, tmp_path):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "one.py").write_text(RECIPE)
    if folder == "pipelines":
        (tmp_path / folder / "on_ctrl_c.py").write_text((ROOT / "pipelines/on_ctrl_c.py").read_text())
        text = RECIPE.replace("sys.path.insert(0,", "sys.path.append(")
        (tmp_path / folder / "one.py").write_text(text)
    done = run_recipe(tmp_path, f"{folder}/one.py", "input=x", "output=y", "task_name=z")
    assert done.stdout.splitlines() == [f"while importing {while_importing}", "while running True"], done.stderr


def test_an_interpreter_without_bertline_is_told_the_command_that_activates_the_environment(tmp_path):
    for with_environment, command in ((False, "make install && source .venv/bin/activate"), (True, "source .venv/bin")):
        folder = tmp_path / str(with_environment)
        shutil.copytree(ROOT / "pipelines", folder / "pipelines", ignore=shutil.ignore_patterns("__pycache__"))
        if with_environment:
            (folder / ".venv").mkdir()
        # Without site-packages, as another interpreter.
        recipe = [sys.executable, "-S", "-E", "pipelines/configure.py"]
        done = subprocess.run(recipe, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and done.stdout == ""
        assert done.stderr.startswith("error: `python` is ") and f"again: {command}" in done.stderr
