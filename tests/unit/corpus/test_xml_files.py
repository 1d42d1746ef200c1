from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.corpus.document import Dropped
from bertline.foundation.errors import DataError
from reading import XmlCorpusConfig, read

ROOT = Path(__file__).resolve().parents[3]
Make = Callable[..., XmlCorpusConfig]

TEI = """<?xml version="1.0" encoding="UTF-8"?>
<TEI xmlns="http://www.tei-c.org/ns/1.0" xml:id="N1">
  <teiHeader><fileDesc><p>Not text.</p></fileDesc></teiHeader>
  <text><body><div>
    <head>Chapter I</head>
    <p>Call me <name>Ishmael</name>.<note>A <p>footnote</p>.</note> Some years<lb/>ago, never
       mind how long pre<lb break="no"/>cisely.</p>
    <lg><l>Old age,</l><l>young heart.</l></lg>
    <p>The <choice><sic>hous</sic><corr>house</corr></choice> stands.</p>
  </div></body></text>
</TEI>
"""


def tei(make: Make, **changes: Any) -> XmlCorpusConfig:
    preset = yaml.safe_load((ROOT / "conf/corpus/tei.yaml").read_text())
    keys = {key: tuple(preset[key]) for key in ("paragraphs", "ignored", "spaces")}
    return make(document=preset["document"], **keys, **changes)


def test_the_preset_reads_a_novel_in_tei(folder: Path, xml_config: Make) -> None:
    (folder / "novel.xml.gz").write_bytes(gzip.compress(TEI.encode()))
    dropped: Counter[str] = Counter()

    found = list(read(tei(xml_config), dropped))

    assert [item.id for item in found] == ["novel.xml.gz:N1"]
    assert found[0].paragraphs == (
        "Call me Ishmael. Some years ago, never\nmind how long precisely.",
        "Old age, young heart.",
        "The house stands.",
    )
    assert not dropped


def test_documents_by_element_are_named_by_id_or_line(folder: Path, xml_config: Make) -> None:
    (folder / "all.xml").write_text(
        "<corpus>\n<doc id='a'><body><p>One.</p></body></doc>\n<doc><body><p>Two.</p><p/></body></doc>\n"
        "<front><doc><p>Not in corpus/doc.</p></doc></front></corpus>"
    )

    found = read(xml_config(document="corpus/doc", paragraphs=("body/p",)))

    assert [(item.id, item.group, item.paragraphs) for item in found] == [
        ("all.xml:a", "", ("One.",)),
        ("all.xml:3", "", ("Two.",)),
    ]


def test_names_of_html_entities_become_characters(folder: Path, xml_config: Make) -> None:
    (folder / "a.xml").write_text(
        '<!DOCTYPE TEI.2 SYSTEM "http://example.org/tei.dtd"><x><p>One&mdash;two &amp; three.</p></x>'
    )
    assert [item.paragraphs for item in read(xml_config())] == [("One—two & three.",)]


BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><x><p>&b;</p></x>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x><p>&a;</p></x>'
FAULTS = {
    "entity bomb": (BOMB, "files/refused", "declares the entity 'a', in line 1"),
    "file of the machine": (OUTSIDE, "files/refused", "declares the entity 'a', in line 1"),
    "never closed": ("<x>\n<p>One.</p>\n<p>", "files/not_xml", "not well-formed XML.*line 3"),
    "NUL byte": ("<x>\n<p>\x00</p></x>", "files/not_xml", "not well-formed XML.*line 2"),
    "no XML": ("Once upon a time", "files/not_xml", "not well-formed XML.*line 1"),
    "unknown encoding": ('<?xml version="1.0" encoding="utf-9"?><x/>', "files/", "utf-9|encoding"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_error_that_names_file_and_line_or_counted(folder: Path, xml_config: Make, fault: str) -> None:
    content, reason, message = FAULTS[fault]
    (folder / "bad.xml").write_text(content)
    (folder / "good.xml").write_text("<x><p>Good.</p></x>")
    dropped: Counter[str] = Counter()

    with pytest.raises(DataError, match=rf"(?s)bad\.xml: .*({message})"):
        list(read(xml_config()))
    found = list(read(xml_config(on_undecodable="skip"), dropped))
    assert found[-1].paragraphs == ("Good.",)
    assert sum(count for name, count in dropped.items() if name.startswith(reason)) >= 1


def test_a_file_without_paragraphs_is_counted_with_what_was_asked_for(folder: Path, xml_config: Make) -> None:
    (folder / "a.xml").write_text("<x><para>Here is the text.</para></x>")
    dropped: list[Dropped] = []

    assert [item.paragraphs for item in read(xml_config(), dropped)] == [()]
    assert [one.reason for one in dropped] == ["files/without_paragraphs"]
    assert "corpus.paragraphs=[p]" in dropped[0].note
