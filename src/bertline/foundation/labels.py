"""The label of positions that have none."""

from __future__ import annotations

IGNORED_LABEL = -100
"""Label of unused entries and of positions that no loss counts: the default `ignore_index` of PyTorch."""
