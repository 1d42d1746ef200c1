"""Slurm clusters of two nodes, with real daemons; skipped, with the reason, where they cannot run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

import once
import slurm_cluster
import slurm_workspace
from slurm_cluster import Settings, SlurmCluster

NewCluster = Callable[..., SlurmCluster]
# Tests of more than a minute, most of which is Slurm's: begun last, one of them would run alone at the end. Each of
# four processes begins with two. While the first makes what the others copy, they have tests that need nothing of it.
FIRST = (
    *("node_that_is_left", "leader killed", "at_its_time_limit", "member asked", "pre_empted", "killed_rank"),
    *("commands_on_clusters", "full_disk_on_one_node"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests."""
    items.sort(key=lambda item: next((rank for rank, name in enumerate(FIRST) if name in item.name), len(FIRST)))


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[NewCluster]:
    """`new_cluster(kill_wait=2, ...)`: a running cluster; the words are those of `Settings`."""
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        numbers = count()

        def new(**settings: int) -> SlurmCluster:
            return stack.enter_context(SlurmCluster(tmp_path / f"slurm{next(numbers)}", Settings(**settings)))

        yield new


@pytest.fixture
def cluster(new_cluster: NewCluster) -> SlurmCluster:
    """A running cluster with the default settings."""
    return new_cluster()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clone that workspaces are copies of."""
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    return once.made(tmp_path_factory, "template", slurm_workspace.make_template)


@pytest.fixture(scope="session")
def pretrained(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a short pretraining."""
    return once.made(tmp_path_factory, "pretrained", lambda folder: slurm_workspace.make_pretrained(template, folder))
