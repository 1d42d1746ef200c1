"""How the packages of the default corpus are split."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import yaml

from bertline.demo.config import PackageConfig, PythonDocsConfig
from bertline.demo.docstrings import _locate, _module_files, group_of, is_held_out


def test_the_default_split_holds_some_of_every_package_out_and_keeps_most() -> None:
    mapping = yaml.safe_load(Path("conf/python_docs/default.yaml").read_text())
    packages = tuple(PackageConfig(**package) for package in mapping.pop("packages"))
    config = PythonDocsConfig(packages=packages, **mapping)
    groups: dict[str, set[str]] = {}
    for package in packages:
        root = _locate(package)
        for name in _module_files(package.module, root, Counter()):
            groups.setdefault(package.module, set()).add(group_of(name, package=package.module))
    for package_name, names in groups.items():
        share = sum(
            is_held_out(name, package=package_name, fraction=config.held_out_fraction, seed=config.split_seed)
            for name in names
        ) / len(names)
        assert 0.03 < share < 0.2, package_name
