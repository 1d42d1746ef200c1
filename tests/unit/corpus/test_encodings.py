from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bertline.corpus.lines import detect_encoding

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
