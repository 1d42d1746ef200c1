"""Text in an object store makes the corpus that the same text on the disk makes, and an error names the store."""

from __future__ import annotations

from pathlib import Path

import boto3
import fsspec
import pytest

from bertline.corpus.build import build_corpus
from bertline.corpus.sentences.learned import LearnedConfig
from bertline.foundation.engine import LocalEngine
from bertline.foundation.errors import DataError
from bertline.foundation.files import sha256_of_path
from corpora import NO_PACKAGES
from reading import TableCorpusConfig
from servers import S3


def config(path: str) -> object:
    return TableCorpusConfig(
        kind="jsonl", path=path, text_column="text", group_column=None, on_undecodable="fail", validation_fraction=0.1,
        split_seed=0, deduplicate="paragraph", min_document_characters=1,
        sentences=LearnedConfig(kind="learned", abbreviations=()),
    )  # fmt: skip


def test_text_of_a_bucket_makes_the_corpus_of_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").mkdir()
    for number in range(3):
        rows = (f'{{"text": "Text {row} of file {number}. It has two sentences."}}\n' for row in range(400))
        (tmp_path / "text" / f"{number}.jsonl").write_text("".join(rows))
    with S3() as server:
        bucket = server.bucket("texts")
        for path in (tmp_path / "text").iterdir():
            bucket.upload_file(str(path), f"in/{path.name}")
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        for name, place in (("disk", str(tmp_path / "text")), ("bucket", "s3://texts/in")):
            engine, work = LocalEngine(0), tmp_path / f"work-{name}"
            build_corpus(config(place), NO_PACKAGES, tmp_path / name, engine=engine, work=work)
        boto3.client("s3", endpoint_url=server.url).delete_object(Bucket="texts", Key="in/2.jsonl")
        fsspec.url_to_fs("s3://texts")[0].invalidate_cache()
        refused = config("s3://elsewhere/in")
        with pytest.raises(DataError, match="s3://elsewhere/in"):
            build_corpus(refused, NO_PACKAGES, tmp_path / "none", engine=LocalEngine(0), work=tmp_path / "work-none")
    assert sha256_of_path(tmp_path / "disk") == sha256_of_path(tmp_path / "bucket")
    with pytest.raises(DataError, match=r"s3://texts/in cannot be read"):
        build_corpus(
            config("s3://texts/in"), NO_PACKAGES, tmp_path / "gone", engine=LocalEngine(0), work=tmp_path / "w"
        )
