"""Docstrings of the attributes of classes, which Python does not keep."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache


@cache
def attribute_docstrings(cls: type) -> dict[str, str]:
    """Return the string below each annotated attribute, of the class and of its bases."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__[:-1]):
        if not vars(one).get("__annotations__"):  # made of others, without a text of its own
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
                found[field.target.id] = inspect.cleandoc(below.value.value)
    return found
