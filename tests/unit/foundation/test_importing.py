"""Imports without garbage collection, by the library and by recipes."""

import gc
from pathlib import Path

import pytest

from bertline.foundation.importing import uncollected_imports
from fork_server import run_recipe

ROOT = Path(__file__).parents[3]
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
