"""How far a reader goes from a recipe to an idea: a hop is one import, one worker path or one part of a task kind."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from bertline.orchestration.stages import stage_named

ROOT = Path(__file__).resolve().parents[2]
KINDS = ROOT / "src/bertline/kinds"
WORKER_PATH = re.compile(r"(bertline(?:\.\w+)+):\w+")
# These open, run and record every stage in the same way; no reader looks for masking in them.
MACHINERY = ("bertline.orchestration", "bertline.tracking", "composition")
IDEAS = [
    ("pretrain", "bertline.pretraining.run", 1),
    ("pretrain", "bertline.pretraining.module", 2),
    ("pretrain", "bertline.modeling.bert", 2),
    ("pretrain", "bertline.examples.masking", 3),
    ("pretrain", "bertline.examples.packing", 3),
    ("pretrain", "bertline.training.schedules", 3),
    ("pretrain", "bertline.training.muon", 4),
    ("sweep", "bertline.sweep.run", 1),
    ("sweep", "bertline.finetuning.finetune", 2),
    ("sweep", "bertline.kinds.classification.model", 3),
    ("sweep", "bertline.tasks.metrics.classification", 4),
    ("sweep", "bertline.tasks.metrics.entities", 4),
    ("sweep", "bertline.tasks.metrics.answers", 4),
]


def path_of(module: str) -> Path | None:
    base = ROOT / "src" / Path(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.exists()), None)


@functools.cache
def next_modules(path: Path) -> set[str]:
    """The modules that a file imports, and those that worker paths in it name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "kind_part":
            part = ast.literal_eval(node.args[1])
            found |= {f"bertline.kinds.{file.parent.name}.{part}" for file in KINDS.glob(f"*/{part}.py")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(WORKER_PATH.findall(node.value)) if WORKER_PATH.fullmatch(node.value) else set()
    return {module for module in found if not module.startswith(MACHINERY)}


def hops(recipe: str) -> dict[str, int]:
    """The distance of every module of bertline that the recipe reaches."""
    found: dict[str, int] = {}
    front, distance = [ROOT / "pipelines" / f"{recipe}.py"], 0
    while front:
        distance += 1
        names = {module for path in front for module in next_modules(path)} - found.keys()
        reached = {module: path for module in names if (path := path_of(module)) is not None}
        found.update(dict.fromkeys(reached, distance))
        front = list(reached.values())
    return found


@pytest.mark.parametrize(("recipe", "module", "num_hops"), IDEAS, ids=str)
def test_an_idea_is_at_most_four_hops_from_its_recipe(recipe: str, module: str, num_hops: int) -> None:
    assert hops(recipe)[module] == num_hops <= 4


@pytest.mark.parametrize("stage", ["pretrain", "sweep"])
def test_a_recipe_names_the_worker_that_the_fingerprint_covers(stage: str) -> None:
    (named,) = WORKER_PATH.findall((ROOT / "pipelines" / f"{stage}.py").read_text(encoding="utf-8"))
    assert stage_named(stage).modules == (named,)
