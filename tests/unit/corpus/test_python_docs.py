from __future__ import annotations

import dataclasses
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from bertline.corpus.config import PackageConfig, PythonDocsConfig
from bertline.corpus.python_docs import held_out_groups, package_versions, read_modules
from bertline.foundation.errors import ConfigError


def test_modules_come_in_a_fixed_order_without_being_imported(pretend_package: PythonDocsConfig) -> None:
    names = [module.name for module in read_modules(pretend_package)]

    assert names == ["pretend", *(f"pretend.part{number}.work" for number in range(10))]
    assert "pretend" not in sys.modules


def test_docstrings_come_in_source_order_with_kind_and_parameters(pretend_package: PythonDocsConfig) -> None:
    module = next(module for module in read_modules(pretend_package) if module.name == "pretend.part3.work")

    found = [(docstring.name, docstring.kind, docstring.parameters) for docstring in module.docstrings]
    assert found == [("", "module", ()), ("Box", "class", ("size", "colour")), ("Box.open", "function", ("key",))]
    assert module.docstrings[1].text == "Holds 3 things at a time."


def test_what_is_left_out_is_counted(pretend_package: PythonDocsConfig) -> None:
    dropped: Counter[str] = Counter()

    list(read_modules(pretend_package, dropped=dropped))

    assert dropped == {"test_module": 1, "unparsable": 1, "undecodable": 1, "no_docstring": 10}


def test_workers_change_nothing(pretend_package: PythonDocsConfig) -> None:
    assert list(read_modules(pretend_package, num_workers=2)) == list(read_modules(pretend_package))


def test_a_subpackage_is_held_out_as_a_whole(pretend_package: PythonDocsConfig) -> None:
    modules = list(read_modules(pretend_package))

    sides = {module.group: {other.held_out for other in modules if other.group == module.group} for module in modules}
    assert all(len(side) == 1 for side in sides.values())
    assert 0 < sum(module.held_out for module in modules) < len(modules) / 2


def test_the_seed_changes_what_is_held_out(pretend_package: PythonDocsConfig) -> None:
    chosen = {
        frozenset(module.name for module in read_modules(config) if module.held_out)
        for config in (dataclasses.replace(pretend_package, split_seed=seed) for seed in range(4))
    }

    assert len(chosen) > 1


def test_the_group_of_a_standard_library_module_is_its_top_level_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("email/mime/text.py", "textwrap.py", "site-packages/numpy/linalg.py"):
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('"""Something is documented here."""')
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "lib"))
    packages = (PackageConfig(module="python", distribution=None),)
    config = PythonDocsConfig(packages=packages, held_out_fraction=0.1, split_seed=0)

    groups = {module.name: module.group for module in read_modules(config)}

    assert groups == {"email.mime.text": "email", "textwrap": "textwrap"}


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


def test_versions_leave_out_local_build_tags(pretend_package: PythonDocsConfig) -> None:
    assert package_versions(pretend_package) == {"pretend": "1.2.3"}


def test_groups_held_out_come_close_to_the_fraction_whatever_the_sizes() -> None:
    for seed in range(20):
        sizes = {f"g{number}": 1 + (number * 37) % 50 for number in range(60)}
        chosen = held_out_groups(sizes, package="p", fraction=0.1, seed=seed)
        share = sum(sizes[group] for group in chosen) / sum(sizes.values())
        assert 0.07 < share < 0.13


def test_one_large_subpackage_does_not_stop_others_from_being_held_out() -> None:
    assert held_out_groups({"big": 1000, "a": 10, "b": 12}, package="p", fraction=0.1, seed=0) <= {"a", "b"}


def test_a_package_of_two_large_groups_has_one_held_out_and_one_of_a_single_group_none() -> None:
    assert held_out_groups({"a": 100, "b": 90}, package="p", fraction=0.1, seed=0) == {"b"}
    assert held_out_groups({"a": 100}, package="p", fraction=0.1, seed=0) == frozenset()
