"""What is learned in pretraining is named in one place: everything else loops over the names of the objective."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "pipelines").glob("*.py")])
NAMES = re.compile(r"(?<![A-Za-z])nsp(?![a-z])|Nsp(?![a-z])|NSP|[Nn]ext.?[Ss]entence|random_next")
MAY_NAME = (
    "src/bertline/examples/",
    "src/bertline/pretraining/objectives/",
    *(f"src/bertline/modeling/{name}.py" for name in ("bert", "weight_files")),
    "src/bertline/inference/",
)


def words_of(path: Path) -> Iterator[str]:
    """All identifiers and all text of a file, docstrings too; comments are left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for _, value in ast.iter_fields(node):
            yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str))


def names_of_nsp(path: Path) -> list[str]:
    return [word for word in words_of(path) if NAMES.search(word)]


def test_next_sentence_prediction_is_named_by_its_objective_alone() -> None:
    names = {path.relative_to(ROOT).as_posix(): names_of_nsp(path) for path in FILES}
    assert {name: words for name, words in names.items() if words and not name.startswith(MAY_NAME)} == {}
