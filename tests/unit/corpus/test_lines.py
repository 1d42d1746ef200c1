from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from bertline.corpus import lines as lines_module
from bertline.corpus.document import Dropped
from bertline.corpus.files import Part
from bertline.corpus.lines import Line, detect_encoding, read_lines
from bertline.corpus.reader import valid
from bertline.foundation.bad_rows import BadRows
from bertline.foundation.errors import DataError

SENTENCES = {
    "cp1252": "Les élèves préfèrent naître près de la forêt, où le garçon a déjà mangé. L’été, c’était « là ». ",
    "cp1251": "Москва является столицей России, и в этом городе живёт очень много людей. ",
    "koi8-r": "Москва является столицей России, и в этом городе живёт очень много людей. ",
    "cp1250": "Žluťoučký kůň příšerně úpěl ďábelské ódy, a přesto se všichni těšili. ",
    "shift_jis": "東京は日本の首都であり、世界でもっとも大きな都市のひとつです。 ",
    "gb18030": "北京是中华人民共和国的首都，也是全国的政治中心和文化中心。 ",
    "cp1255": "ירושלים היא עיר הבירה של מדינת ישראל והעיר הגדולה ביותר בה. ",
}


def part_of(path: Path) -> Part:
    return Part(str(path), path.name, path.stat().st_size)


@pytest.mark.parametrize("encoding", SENTENCES)
def test_the_text_is_what_was_written(tmp_path: Path, encoding: str) -> None:
    text = SENTENCES[encoding] * 5
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))

    found = detect_encoding(part_of(tmp_path / "a.txt"))

    assert found is not None
    assert (tmp_path / "a.txt").read_text(encoding=found) == text


def test_ascii_at_the_beginning_decides_nothing(tmp_path: Path) -> None:
    text = "Plain words in a row.\n" * 20_000 + SENTENCES["cp1251"] * 5
    for encoding in ("cp1251", "utf-8"):
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode(encoding)))
        found = detect_encoding(part_of(tmp_path / "a.txt.gz"))
        assert found is not None
        assert text.encode(encoding).decode(found) == text


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


def test_a_nul_byte_is_named_skipped_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "nul.txt"
    path.write_bytes(b"fine\nbro\x00ken\nfine again\n")

    with pytest.raises(DataError, match=r"nul.txt:2: a NUL byte at character 4"):
        lines_of(path)
    assert [line.undecodable for line in lines_of(path, "skip")[0]] == [False, True, False]
    found, dropped = lines_of(path, "replace")
    assert found[1] == Line(2, "bro\ufffdken", undecodable=False)
    assert dropped == {"lines/replaced": 1}


def test_a_line_over_the_limit_is_named_or_counted_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "_MAX_LINE_CHARACTERS", 1_000)
    monkeypatch.setattr(lines_module, "_SKIPPED_CHARACTERS", 100)
    path = tmp_path / "long.txt"
    path.write_text("short\n" + "x" * 5_000 + "\nlast\n")

    with pytest.raises(DataError, match=r"long.txt: line 2 has over 1,000 characters"):
        lines_of(path)
    found, dropped = lines_of(path, "skip")
    assert found == [Line(1, "short", False), Line(2, "", True), Line(3, "last", False)]
    assert dropped == {"lines/too_long": 1}


@pytest.mark.parametrize("encoding", ["utf-8", "auto"])
@pytest.mark.parametrize("kind", ["tar", "zip", "tar in gzip"])
def test_an_archive_is_not_opened_but_named_or_counted(tmp_path: Path, kind: str, encoding: str) -> None:
    path = tmp_path / "archive.txt"
    member = "../../outside.txt"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member, TEXT)
    else:
        with tarfile.open(path, "w:gz" if "gzip" in kind else "w") as archive:
            info = tarfile.TarInfo(member)
            info.size = len(TEXT.encode())
            archive.addfile(info, io.BytesIO(TEXT.encode()))

    with pytest.raises(DataError, match=rf"archive.txt: a {kind[:3]} archive.*Unpack it into a folder"):
        lines_of(path, encoding=encoding)
    found, dropped = lines_of(path, "skip", encoding)
    assert (found, dropped) == ([], {"files/archive": 1})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["archive.txt"]


def test_auto_reads_every_file_in_its_own_encoding_and_counts_them(tmp_path: Path) -> None:
    dropped: Counter[str] = Counter()
    sentence = "Die Straße führt über die Brücke, und später kehrten die müden Wanderer zurück.\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        path = tmp_path / f"{encoding}.txt"
        path.write_bytes((sentence * 4).encode(encoding))
        found, reasons = lines_of(path, encoding="auto")
        assert [line.text + "\n" for line in found] == [sentence] * 4, encoding
        dropped += reasons

    assert {reason.split("/")[0] for reason in dropped} == {"encodings"}
    assert sum(dropped.values()) == 2


UMLAUTS = "Die Straße führt über die Brücke, und die müden Wanderer kehrten zurück.\n"


def test_a_few_damaged_lines_do_not_change_the_encoding_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(UMLAUTS.encode() * 20 + b"caf\xe9\n")
    with pytest.raises(DataError, match=r"a.txt:21: byte 0xe9 at character 4 is not utf-8 text. Most of the file is"):
        lines_of(tmp_path / "a.txt", encoding="auto")
    assert lines_of(tmp_path / "a.txt", "skip", "auto")[0][20].undecodable
