"""Comparison of nested mappings."""

from __future__ import annotations

from bertline.foundation.mappings import differences


def test_differences_name_nested_keys_and_compare_lists_whole() -> None:
    old = {"a": {"b": [1, 2], "c": 1}, "gone": 1}
    new = {"a": {"b": [1, 3], "c": 1}, "new": 2}
    assert differences(old, new) == {"a.b": ([1, 2], [1, 3]), "gone": (1, "(absent)"), "new": ("(absent)", 2)}
