from __future__ import annotations

import bz2
import gzip
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from bertline.corpus import lines as lines_module
from bertline.corpus.document import Dropped
from bertline.corpus.files import Part
from bertline.corpus.lines import Line, read_lines
from bertline.corpus.reader import valid
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.errors import DataError


def part_of(path: Path) -> Part:
    return Part(str(path), path.name, path.stat().st_size)


TEXT = "".join(f"line number {number * 7919 % 1000}: déjà vu\n" for number in range(500))
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd.compress,
}


def lines_of(path: Path, on_undecodable: Any = "fail", encoding: str = "utf-8") -> tuple[list[Line], Counter[str]]:
    bad_rows = BadRows("error", option=None)
    found = [one for item in read_lines(part_of(path), encoding, on_undecodable) for one in valid(item, bad_rows)]
    bad_rows.end()
    lines = [line for line in found if isinstance(line, Line)]
    return lines, Counter(one.reason for one in found if isinstance(one, Dropped))


@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize("kept", [0.05, 0.5, 0.95])
def test_a_torn_archive_is_an_error_that_names_the_line_or_counted(tmp_path: Path, ending: str, kept: float) -> None:
    path = tmp_path / f"torn.txt.{ending}"
    whole = COMPRESSIONS[ending](TEXT.encode())
    path.write_bytes(whole[: max(8, int(kept * len(whole)))])

    with pytest.raises(DataError, match=rf"torn.txt.{ending}: the \w+ data is torn after line \d+"):
        lines_of(path)
    found, dropped = lines_of(path, "skip")
    assert dropped == {"files/torn": 1}
    assert TEXT.startswith("\n".join(line.text for line in found[:-1]))


def test_undecodable_bytes_are_named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\ncaf\xe9\n")

    with pytest.raises(DataError, match=r"latin.txt:2: byte 0xe9 at character 4 is not utf-8 text\."):
        lines_of(path)
    assert [line.text for line in lines_of(path, encoding="latin-1")[0]] == ["fine", "café"]


def test_a_nul_byte_is_named_or_marked(tmp_path: Path) -> None:
    path = tmp_path / "nul.txt"
    path.write_bytes(b"fine\nbro\x00ken\nfine again\n")

    with pytest.raises(DataError, match=r"nul.txt:2: a NUL byte at character 4"):
        lines_of(path)
    assert [line.undecodable for line in lines_of(path, "skip")[0]] == [False, True, False]


def test_a_line_over_the_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "_MAX_LINE_CHARACTERS", 1_000)
    (tmp_path / "long.txt").write_text("short\n" + "x" * 5_000 + "\nlast\n")
    for policy in ("fail", "skip"):
        with pytest.raises(DataError, match=r"long.txt: line 2 has over 1,000 characters"):
            lines_of(tmp_path / "long.txt", policy)
