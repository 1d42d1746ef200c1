"""A kind of task has all its parts, or it is refused where it is registered."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path

import pytest

from bertline.kinds import registry
from bertline.kinds.registry import KINDS, check_parts, kind_part

FOLDER = Path(registry.__file__).parent


@pytest.mark.parametrize("part", ["data", "model", "baselines", "serving", "report"])
def test_a_kind_without_a_part_is_refused(tmp_path: Path, part: str) -> None:
    kind = tmp_path / "sorting"
    shutil.copytree(FOLDER / "regression", kind)
    check_parts(kind)
    (kind / f"{part}.py").unlink()
    with pytest.raises(TypeError, match=rf"'sorting' needs a function .* in .*{part}.py"):
        check_parts(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_functions_of_all_kinds_need_the_same_arguments(kind: str) -> None:
    def needed(each: str, part: registry.Part, name: str) -> list[str]:
        parameters = inspect.signature(getattr(kind_part(each, part), name)).parameters.values()
        return [one.name for one in parameters if one.default is one.empty]

    for part, names in registry._CONTRACT.items():
        for name in names:
            assert needed(kind, part, name) == needed("regression", part, name)
