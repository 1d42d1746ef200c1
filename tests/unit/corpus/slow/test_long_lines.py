"""A line of 5 GB is named or counted in bounded memory, where lines are read by themselves and where XML is parsed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

HERE = Path(__file__).parents[1]
LIMIT = 200_000_000
MAX_BYTES = 1_500_000_000  # one line up to the limit and its copies; not 5 GB
READ = """
import json, re, sys
from collections import Counter
from pathlib import Path
sys.path[:0] = [{here!r}, {support!r}]
import conftest
from reading import TextCorpusConfig, XmlCorpusConfig, read
from bertline.foundation.errors import DataError

path, kind, policy = sys.argv[1:]
fields = {{"path": path, "kind": kind, **conftest.COMMON, "on_undecodable": policy}}
text = conftest.PLAIN_TEXT | {{"document": "line", "encoding": "auto"}}
xml = {{"document": None, "paragraphs": ("p",), "ignored": (), "spaces": ()}}
config = TextCorpusConfig(**fields, **text) if kind == "text" else XmlCorpusConfig(**fields, **xml)
dropped, error, texts = Counter(), None, []
try:
    texts = [document.paragraphs for document in read(config, dropped)]
except DataError as problem:
    error = str(problem)
# Not ru_maxrss, which begins with that of the process that started this one.
memory = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({{"texts": texts, "dropped": dropped, "error": error, "memory": memory}}))
"""
AROUND = {"text": ("Before.\n", "\nAfter.\n"), "xml": ("<x><p>One.</p><p>", "</p></x>")}
TEXTS: dict[str, list[list[str]]] = {"text": [["Before."], ["After."]], "xml": []}
COUNTED = {
    "text": {"lines/too_long": 1, "documents/undecodable": 1},
    "xml": {"files/refused": 1, "files/without_paragraphs": 1},
}


@pytest.mark.parametrize("kind", AROUND)
def test_a_line_of_25_times_the_limit_is_an_error_with_its_place_or_counted(tmp_path: Path, kind: str) -> None:
    frame, (before, after) = zstd.compress(b"a" * (LIMIT // 4)), AROUND[kind]
    path = tmp_path / f"a.{'txt' if kind == 'text' else kind}.zst"
    path.write_bytes(zstd.compress(before.encode()) + 100 * frame + zstd.compress(after.encode()))

    def read(policy: str) -> dict[str, Any]:
        script = READ.format(here=str(HERE), support=str(HERE.parents[1] / "support"))
        command = [sys.executable, "-c", script, str(path), kind, policy]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert result["memory"] < MAX_BYTES
        return result

    skipped = read("skip")
    assert (skipped["error"], skipped["texts"], skipped["dropped"]) == (None, TEXTS[kind], COUNTED[kind])
    assert "200,000,000 characters" in (error := read("fail")["error"]) and "line " in error
