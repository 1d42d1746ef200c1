"""A line of 5 GB is named in bounded memory, where lines are read by themselves and where XML is parsed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from backports import zstd

HERE = Path(__file__).parents[1]
LIMIT = 200_000_000
MAX_BYTES = 1_500_000_000  # one line up to the limit and its copies; not 5 GB
READ = """
import json, re, sys
from pathlib import Path
sys.path[:0] = [{here!r}, {support!r}]
import conftest
from reading import TextCorpusConfig, XmlCorpusConfig, read
from bertline.foundation.errors import DataError

path, kind = sys.argv[1:]
fields = {{"path": path, "kind": kind, **conftest.COMMON}}
text = conftest.PLAIN_TEXT | {{"document": "line"}}
xml = {{"document": None, "paragraphs": ("p",), "ignored": (), "spaces": ()}}
config = TextCorpusConfig(**fields, **text) if kind == "text" else XmlCorpusConfig(**fields, **xml)
try:
    list(read(config))
except DataError as problem:
    error = str(problem)
# Not ru_maxrss, which begins with that of the process that started this one.
memory = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps([error, memory]))
"""
AROUND = {"text": ("Before.\n", "\nAfter.\n"), "xml": ("<x><p>One.</p><p>", "</p></x>")}


@pytest.mark.parametrize("kind", AROUND)
def test_a_line_of_25_times_the_limit_is_an_error_with_its_place(tmp_path: Path, kind: str) -> None:
    frame, (before, after) = zstd.compress(b"a" * (LIMIT // 4)), AROUND[kind]
    path = tmp_path / f"a.{'txt' if kind == 'text' else kind}.zst"
    path.write_bytes(zstd.compress(before.encode()) + 100 * frame + zstd.compress(after.encode()))
    script = READ.format(here=str(HERE), support=str(HERE.parents[1] / "support"))
    done = subprocess.run([sys.executable, "-c", script, str(path), kind], capture_output=True, text=True, check=True)
    error, memory = json.loads(done.stdout.splitlines()[-1])
    assert memory < MAX_BYTES
    assert "200,000,000 characters" in error and "line " in error
