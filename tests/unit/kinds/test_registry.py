"""Kinds of tasks are called alike, and reading a configuration imports little."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from bertline.kinds.base import TaskKind
from bertline.kinds.registry import KINDS
from bertline.run.fingerprints import MEMBERS_OF_STAGES


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_called_as_the_others_are(name: str) -> None:
    kind = KINDS[name]
    assert kind.asks.endswith((".", "?"))
    for part in ("build", "usage", "error_block"):
        arguments = list(inspect.signature(getattr(kind, part)).parameters)
        assert arguments == list(inspect.signature(getattr(TaskKind, part)).parameters)


def test_members_of_stages_are_members_of_a_kind() -> None:
    """A fingerprint would not leave out a member that is renamed."""
    for members in MEMBERS_OF_STAGES.values():
        assert set(members) <= vars(TaskKind).keys() | TaskKind.__annotations__.keys()


def test_a_configuration_is_read_without_what_kinds_import_in_their_methods() -> None:
    # SciPy looks torch up in `sys.modules`, so an entry of None would break it.
    heavy = {"torch", "pytorch_lightning", "sklearn", "scipy", "matplotlib", "pandas", "faiss", "bm25s", "tokenizers"}
    code = f"import sys, bertline.config\nprint({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
