from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bertline.demo import docstrings
from bertline.demo.config import PackageConfig, PythonDocsConfig
from bertline.demo.docstrings import _locate, docstrings_kept_in, read_modules
from bertline.foundation.errors import ConfigError


def test_modules_and_docstrings_come_in_order_without_being_imported_and_what_is_left_out_is_counted(
    pretend_package: PythonDocsConfig,
) -> None:
    dropped: Counter[str] = Counter()
    modules = {module.name: module.docstrings for module in read_modules(pretend_package, dropped=dropped)}

    assert [*modules] == ["pretend", *(f"pretend.part{number}.work" for number in range(10))]
    assert "pretend" not in sys.modules
    docstrings = modules["pretend.part3.work"]
    found = [(docstring.name, docstring.kind, docstring.parameters) for docstring in docstrings]
    assert found == [("", "module", ()), ("Box", "class", ("size", "colour")), ("Box.open", "function", ("key",))]
    assert docstrings[1].text == "Holds 3 things at a time."
    assert dropped == {"test_module": 1, "unparsable": 1, "undecodable": 1, "no_docstring": 10}


def test_kept_docstrings_are_those_that_would_be_read(
    pretend_package: PythonDocsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, without = Counter[str](), Counter[str]()
    expected = list(read_modules(pretend_package, dropped=without))

    with docstrings_kept_in(tmp_path / "kept", reader="one"):
        list(read_modules(pretend_package, num_workers=2))
        monkeypatch.delattr(docstrings.ast, "parse")  # nothing is parsed any more
        found = list(read_modules(pretend_package, dropped=counts))

    assert found == expected
    assert [each.prose for module in found for each in module.docstrings] == [
        each.prose for module in expected for each in module.docstrings
    ]
    assert counts == without


def _changed(content: bytes) -> bytes:
    return content.replace(b"Holds 3 things", b"Holds 5 things")


@pytest.mark.parametrize(
    ("of_source", "change", "text"),
    [(True, _changed, "Holds 5 things"), (False, lambda content: content[:-9], "Holds 3 things")],
    ids=["source", "torn"],
)
def test_docstrings_are_read_again_when_their_source_or_what_is_kept_has_changed(
    pretend_package: PythonDocsConfig, tmp_path: Path, of_source: bool, change: Callable[[bytes], bytes], text: str
) -> None:
    with docstrings_kept_in(tmp_path / "kept", reader="one"):
        list(read_modules(pretend_package))
        source = _locate(pretend_package.packages[0]) / "part3" / "work.py"
        for path in [source] if of_source else (tmp_path / "kept").iterdir():
            path.write_bytes(change(path.read_bytes()))
        found = {module.name: module for module in read_modules(pretend_package)}

    assert found["pretend.part3.work"].docstrings[1].text.startswith(text)


def test_a_subpackage_is_held_out_as_a_whole(pretend_package: PythonDocsConfig) -> None:
    modules = list(read_modules(pretend_package))

    sides = {module.group: {other.held_out for other in modules if other.group == module.group} for module in modules}
    assert all(len(side) == 1 for side in sides.values())
    assert 0 < sum(module.held_out for module in modules) < len(modules) / 2


@pytest.mark.parametrize(
    ("module", "distribution"), [("pretend", "no-such-distribution"), ("no_such_module", "pretend-dist")]
)
def test_a_package_that_is_not_installed_is_named(
    pretend_package: PythonDocsConfig, module: str, distribution: str
) -> None:
    packages = (PackageConfig(module=module, distribution=distribution),)
    config = dataclasses.replace(pretend_package, packages=packages)

    with pytest.raises(ConfigError, match=f"{module}.*{distribution}.*not installed"):
        next(read_modules(config))
