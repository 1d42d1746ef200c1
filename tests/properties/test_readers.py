"""Every reader on damaged files: an error that names the file, or documents; with `skip`, the damage is counted."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.corpus.reader import CorpusReader
from bertline.corpus.sentences.learned import LearnedConfig
from bertline.foundation.errors import DataError
from reading import TableCorpusConfig, TextCorpusConfig, WikiExtractorCorpusConfig, XmlCorpusConfig, read

COMMON = {
    "validation_fraction": 0.1, "split_seed": 0, "deduplicate": "none",
    "sentences": LearnedConfig(kind="learned", abbreviations=()),
    "min_document_characters": 1,
}  # fmt: skip
TEXT = "Der Weg führt über die Brücke.\n\nCHAPTER II\nEr kehrt zurück: 東京.\n"
SEEDS = {
    "text": TEXT,
    "wikiextractor": f'<doc id="1" url="u" title="T">\nT\n\n{TEXT}</doc>\n<doc id="2" title="U">\nU\n\nEnd.\n</doc>\n',
    "jsonl": "".join(json.dumps({"text": line, "n": 1}) + "\n" for line in TEXT.splitlines()),
    "csv": 'text,n\n"Der ""Weg""\nführt",1\nZurück,2\n',
    "xml": f'<?xml version="1.0"?>\n<!DOCTYPE x>\n<x><d id="a"><p>{TEXT}</p></d>\n<d id="b"><p>&amp;&#228;</p></d></x>',
}
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd.compress
}  # fmt: skip
PARQUET_COMPRESSIONS = ["none", "zstd", "snappy", "gzip", "brotli"]
PARQUET_LIMIT_BYTES = 1 << 28
PIECES = [
    b"\x00", b"\xff", b"\n", b"\r", b'"', b",", b"<", b">", b"&x;", b"<!ENTITY a 'b'>", b"<doc id=", b"</doc>",
    b"{", b"[" * 50, b"\xef\xbb\xbf", b"\xff\xfe", b"PK\x03\x04", b"BZh9", b"\x28\xb5\x2f\xfd", b"\x1f\x8b",
    b"]]>", b"<![CDATA[", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8",
]  # fmt: skip


@contextmanager
def soon() -> Iterator[None]:
    """Fail if the block takes a minute of the processor, thousands of times as long as it does."""
    begun = time.process_time()
    try:
        yield
    finally:
        assert time.process_time() - begun < 60


def reader(kind: str, folder: str, **changes: Any) -> CorpusReader:
    place = {"path": folder, **COMMON, **changes}
    match kind:
        case "text":
            return TextCorpusConfig(kind="text", document="regex", document_start="^CHAPTER", encoding="utf-8", **place)
        case "wikiextractor":
            return WikiExtractorCorpusConfig(kind="wikiextractor", encoding="utf-8", **place)
        case "xml":
            return XmlCorpusConfig(
                kind="xml", document="d", paragraphs=("p",), ignored=("note",), spaces=("lb",), **place
            )
        case _:
            return TableCorpusConfig(kind=kind, text_column="text", group_column="n", **place)


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Cuts, flipped bytes, insertions and repetitions at drawn places."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["cut", "flip", "insert", "repeat"]), st.floats(0, 1), st.floats(0, 1),
                st.sampled_from(PIECES),
            ),
            min_size=1, max_size=4,
        )
    )  # fmt: skip

    def mutate(content: bytes) -> bytes:
        for name, at, to, piece in steps:
            start, end = sorted((int(at * len(content)), int(to * len(content))))
            match name:
                case "cut":
                    content = content[:start] + content[end:]
                case "flip" if content:
                    place = min(start, len(content) - 1)
                    content = content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]
                case "insert":
                    content = content[:start] + piece + content[start:]
                case "repeat":
                    content = content[:end] + content[start:end] + content[end:]
        return content

    return mutate


def others() -> st.SearchStrategy[Callable[[bytes], bytes]]:
    """Any other content."""
    content = st.binary(max_size=200) | st.text().map(lambda text: f"text,n\n{text}".encode())
    return content.map(lambda other: lambda _: other)


@pytest.mark.parametrize("kind", SEEDS)
@settings(max_examples=80)
@given(
    inner=mutations() | others() | st.just(bytes), outer=mutations() | st.just(bytes),
    compression=st.sampled_from([*COMPRESSIONS]), policy=st.sampled_from(["fail", "skip"]),
)  # fmt: skip
def test_a_damaged_file_gives_documents_or_an_error_that_names_it(
    kind: str, inner: Callable[[bytes], bytes], outer: Callable[[bytes], bytes], compression: str, policy: str
) -> None:
    content = outer(COMPRESSIONS[compression](inner(SEEDS[kind].encode())))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.{'txt' if kind == 'text' else kind}")
        path.write_bytes(content)
        try:
            with soon():
                found = list(read(reader(kind, folder, on_undecodable=policy)))
        except DataError as error:
            assert str(path) in str(error)
            return
    for document in found:
        "".join(document.paragraphs).encode()


def parquet(compression: str, *, dictionary: bool) -> bytes:
    """Five rows, of which three have text, in row groups of two."""
    buffer = io.BytesIO()
    table = pa.table({"text": [*TEXT.splitlines(), None], "n": range(5)})
    pq.write_table(table, buffer, row_group_size=2, compression=compression, use_dictionary=dictionary)
    return buffer.getvalue()


@settings(max_examples=300)
@given(
    mutate=mutations() | others(),
    compression=st.sampled_from(PARQUET_COMPRESSIONS), dictionary=st.booleans(),
    policy=st.sampled_from(["fail", "skip"]),
)  # fmt: skip
def test_a_damaged_parquet_file_gives_documents_or_is_named_or_counted_in_little_memory(
    mutate: Callable[[bytes], bytes], compression: str, dictionary: bool, policy: str
) -> None:
    whole = parquet(compression, dictionary=dictionary)
    content = mutate(whole)
    dropped: Counter[str] = Counter()
    most_before = pa.default_memory_pool().max_memory()  # of other tests of this process
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.parquet")
        path.write_bytes(content)
        try:
            with soon():
                found = list(read(reader("parquet", folder, on_undecodable=policy), dropped))
        except DataError as error:
            assert str(path) in str(error)
            assert policy == "fail" or "column" in str(error)  # a damaged name or type of a column
            return
        finally:
            assert pa.default_memory_pool().max_memory() < max(PARQUET_LIMIT_BYTES, most_before + 1)
    for document in found:
        "".join(document.paragraphs).encode()
    assert sum(dropped.values()) or len(found) == 5 or content != whole
    assert not (dropped["files/torn"] and dropped["files/empty"])


@pytest.mark.parametrize("kind", SEEDS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_an_undamaged_file_is_read_without_loss(tmp_path: Path, kind: str, compression: str) -> None:
    ending = "txt" if kind == "text" else kind
    (tmp_path / f"a.{ending}").write_bytes(COMPRESSIONS[compression](SEEDS[kind].encode()))
    dropped: Counter[str] = Counter()

    found = list(read(reader(kind, str(tmp_path), on_undecodable="fail"), dropped))

    assert len(found) >= 2
    assert "zurück" in " ".join(paragraph for item in found for paragraph in item.paragraphs).lower()
    assert not any(reason.startswith("files/") for reason in dropped)
