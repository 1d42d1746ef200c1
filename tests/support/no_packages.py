"""What a corpus or a task is built with that is not made of Python packages."""

from __future__ import annotations

from bertline.demo.config import PackageConfig, PythonDocsConfig

NO_PACKAGES = PythonDocsConfig(
    packages=(PackageConfig(module="none", distribution=None),), held_out_fraction=0.5, split_seed=0
)
