"""A line of 5 GB: every reader names or counts it, in bounded memory.

At the real limits where lines are read by themselves and where XML is parsed; the readers of records share
`bertline.corpus.lines` with the former, and get the same line with both a fiftieth of its size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

LIMIT = 200_000_000
MAX_BYTES = 1_500_000_000  # one line up to the limit and its copies; not 5 GB
NUM_LIMITS = 25  # how many times the limit the line is long
REDUCED = 50
READ = """
import json, re, sys
from collections import Counter
from pathlib import Path
sys.path.insert(0, {here!r})
import conftest
from bertline.corpus import lines
from bertline.corpus.readers.table import TableCorpusConfig
from bertline.corpus.readers.text import TextCorpusConfig
from bertline.corpus.readers.wikiextractor import WikiExtractorCorpusConfig
from bertline.corpus.readers.xml import XmlCorpusConfig
from bertline.foundation.errors import DataError

path, kind, policy, limit = sys.argv[1:]
if limit:
    lines._MAX_LINE_CHARACTERS = int(limit)
    lines._SKIPPED_CHARACTERS = int(limit) // 4
fields = {{"path": path, "kind": kind, **conftest.COMMON, "on_undecodable": policy}}
column = {{"text_column": "text", "group_column": None}}
make = {{
    "text": lambda: TextCorpusConfig(**fields, **conftest.PLAIN_TEXT | {{"document": "line", "encoding": "auto"}}),
    "wikiextractor": lambda: WikiExtractorCorpusConfig(**fields, encoding="utf-8"),
    "xml": lambda: XmlCorpusConfig(**fields, document=None, paragraphs=("p",), ignored=(), spaces=()),
    "jsonl": lambda: TableCorpusConfig(**fields, **column),
    "csv": lambda: TableCorpusConfig(**fields, **column),
}}[kind]
def memory():
    # Not ru_maxrss, which begins with that of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

begun = memory()
dropped, error, found = Counter(), None, []
try:
    found = [[document.id, document.paragraphs] for document in make().read(dropped)]
except DataError as problem:
    error = str(problem)
print(json.dumps({{"found": found, "dropped": dropped, "error": error, "memory": memory(), "begun": begun}}))
"""
# What stands around the line, and what is found.
AROUND: dict[str, tuple[str, str, list[list[object]]]] = {
    "text": ("Before.\n", "\nAfter.\n", [["a.txt.zst:1", ["Before."]], ["a.txt.zst:3", ["After."]]]),
    "jsonl": (
        '{"text": "One."}\n{"text": "',
        '"}\n{"text": "Three."}\n',
        [["a.jsonl.zst:1", ["One."]], ["a.jsonl.zst:3", ["Three."]]],
    ),
    "csv": ("text\nOne.\n", "\nThree.\n", [["a.csv.zst:2", ["One."]], ["a.csv.zst:4", ["Three."]]]),
    "wikiextractor": (
        '<doc id="1" title="T">\n',
        '\n</doc>\n<doc id="2" title="U">\nTwo.\n</doc>\n',
        [["a.wikiextractor.zst:2", ["Two."]]],
    ),
    "xml": ("<x><p>One.</p><p>", "</p></x>", []),
}
REAL = ("text", "xml")
COUNTED = {kind: {"lines/too_long": 1, "documents/undecodable": 1} for kind in AROUND}
COUNTED["xml"] = {"files/refused": 1, "files/without_paragraphs": 1}


def read(tmp_path: Path, kind: str, policy: str) -> dict[str, Any]:
    """What a process finds in a line of 25 times the limit, and what memory it took beyond its imports."""
    limit = LIMIT if kind in REAL else LIMIT // REDUCED
    frame = zstd.compress(b"a" * (limit // 4))
    before, after, _ = AROUND[kind]
    path = tmp_path / f"a.{'txt' if kind == 'text' else kind}.zst"
    with path.open("wb") as handle:
        handle.write(zstd.compress(before.encode()))
        for _ in range(4 * NUM_LIMITS):
            handle.write(frame)
        handle.write(zstd.compress(after.encode()))
    assert path.stat().st_size < 2_000_000
    script = READ.format(here=str(Path(__file__).parents[1]))
    command = [sys.executable, "-c", script, str(path), kind, policy, "" if kind in REAL else str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    said = json.loads(done.stdout.splitlines()[-1])
    # What the libraries keep of any file does not shrink with the line.
    most = MAX_BYTES if kind in REAL else said["begun"] + MAX_BYTES // REDUCED + 16_000_000
    assert said["memory"] < most
    return said


@pytest.mark.parametrize("kind", AROUND)
def test_a_line_of_25_times_the_limit_is_counted_and_what_follows_is_read(tmp_path: Path, kind: str) -> None:
    said = read(tmp_path, kind, "skip")
    assert (said["error"], said["found"]) == (None, AROUND[kind][2])
    assert said["dropped"] == COUNTED[kind]


@pytest.mark.parametrize("kind", AROUND)
def test_a_line_of_25_times_the_limit_is_an_error_that_names_its_place(tmp_path: Path, kind: str) -> None:
    said = read(tmp_path, kind, "fail")
    problem = {
        "text": "has over 200,000,000 characters",
        "xml": "200,000,000 characters in one document",
    }.get(kind, "has over 4,000,000 characters")
    assert problem in said["error"]
    assert "line " in said["error"]
