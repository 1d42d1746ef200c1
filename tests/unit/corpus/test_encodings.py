from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bertline.corpus.encodings import detect_encoding

SENTENCES = {
    "cp1252": "Les élèves préfèrent naître près de la forêt, où le garçon a déjà mangé. L’été, c’était « là ». ",
    "cp1251": "Москва является столицей России, и в этом городе живёт очень много людей. ",
    "koi8-r": "Москва является столицей России, и в этом городе живёт очень много людей. ",
    "cp1250": "Žluťoučký kůň příšerně úpěl ďábelské ódy, a přesto se všichni těšili. ",
    "shift_jis": "東京は日本の首都であり、世界でもっとも大きな都市のひとつです。 ",
    "gb18030": "北京是中华人民共和国的首都，也是全国的政治中心和文化中心。 ",
    "cp1255": "ירושלים היא עיר הבירה של מדינת ישראל והעיר הגדולה ביותר בה. ",
}


@pytest.mark.parametrize("encoding", SENTENCES)
def test_the_text_is_what_was_written(tmp_path: Path, encoding: str) -> None:
    text = SENTENCES[encoding] * 5
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))

    found = detect_encoding(tmp_path / "a.txt")

    assert found is not None
    assert (tmp_path / "a.txt").read_text(encoding=found) == text


def test_ascii_at_the_beginning_decides_nothing(tmp_path: Path) -> None:
    text = "Plain words in a row.\n" * 20_000 + SENTENCES["cp1251"] * 5
    for encoding in ("cp1251", "utf-8"):
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode(encoding)))
        found = detect_encoding(tmp_path / "a.txt.gz")
        assert found is not None
        assert text.encode(encoding).decode(found) == text


def test_utf8_with_a_few_lines_of_another_encoding_is_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(SENTENCES["cp1251"].encode() * 20 + b"caf\xe9\n")
    assert detect_encoding(tmp_path / "a.txt") == "utf-8"


def test_empty_and_ascii_files_are_utf8(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "plain").write_bytes(b"plain\n")
    assert detect_encoding(tmp_path / "empty") == detect_encoding(tmp_path / "plain") == "utf-8"


def test_typographic_quotes_of_windows_are_no_letters_of_an_old_mac(tmp_path: Path) -> None:
    path = tmp_path / "prose.txt"
    text = "It\u2019s late, she said.\nThey don\u2019t know \u201cwhy\u201d.\n" * 20
    path.write_bytes(text.encode("cp1252"))
    found = detect_encoding(path)
    assert found is not None
    assert path.read_bytes().decode(found) == text
