from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bertline.corpus.input_files import InputFile, find_files
from bertline.corpus.lines import read_lines
from bertline.foundation.errors import DataError


def lines_of(path: Path, encoding: str = "utf-8", on_undecodable: str = "fail") -> tuple[list[str], Counter[str]]:
    dropped: Counter[str] = Counter()
    file = InputFile(path, path.name)
    return [line.text for line in read_lines(file, encoding, on_undecodable, dropped)], dropped


def test_a_folder_is_searched_in_order_of_names_and_other_files_are_counted(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.TXT.gz", "a.txt", "notes.pdf", ".hidden.txt", ".git/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    dropped: Counter[str] = Counter()

    assert [file.name for file in find_files(str(tmp_path), (".txt",), dropped)] == ["a.txt", "a/z.TXT.gz", "b.txt"]
    assert dropped == {"files/other_suffix": 1}


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert [file.name for file in find_files(str(tmp_path / "link"), (".txt",), Counter())] == ["a.txt"]


def test_a_glob_takes_what_it_matches_whatever_the_ending(tmp_path: Path) -> None:
    for name in ("x/wiki_00", "x/wiki_01", "y/other"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")

    assert [file.name for file in find_files(f"{tmp_path}/*/wiki_*", (".txt",), Counter())] == [
        "x/wiki_00",
        "x/wiki_01",
    ]


def test_a_path_that_matches_nothing_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.*matches nothing"):
        find_files(str(tmp_path / "nowhere"), (".txt",), Counter())
    (tmp_path / "report.pdf").write_text("text")
    with pytest.raises(DataError, match=r"holds no files ending in .txt.*1 other files, such as report.pdf"):
        find_files(str(tmp_path), (".txt",), Counter())


def test_undecodable_bytes_are_named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\ncaf\xe9\n")

    with pytest.raises(DataError, match=r"latin.txt:2: byte 0xe9 at character 4 is not utf-8 text"):
        lines_of(path)
    assert lines_of(path, "latin-1")[0] == ["fine", "café"]
