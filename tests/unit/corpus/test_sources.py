from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.corpus.document import label_of
from bertline.corpus.registry import SourcesCorpusConfig
from bertline.corpus.storage import read_documents
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import sha256_of_path
from bertline.foundation.validation import validate
from corpora import build, drops_of, manifest_of

Make = Callable[..., SourcesCorpusConfig]
SETTINGS: dict[str, Any] = {
    "kind": "sources", "language_exponent": None, "sampling_seed": 0, "validation_fraction": 0.2, "split_seed": 0,
    "deduplicate": "document", "min_document_characters": 1,
    "sentences": {"kind": "learned", "abbreviations": []},
}  # fmt: skip


def text_source(path: Path, **changes: Any) -> dict[str, Any]:
    fields = {"document": "line", "document_start": None, "encoding": "utf-8"}
    common = {"on_undecodable": "fail", "weight": 1.0, "language": None}
    return {"kind": "text", "path": str(path), **fields, **common, **changes}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for name, number in (("novels", 60), ("wiki", 200)):
        (tmp_path / name).mkdir()
        lines = [f"Document {index} of {name} begins here. It ends there." for index in range(number)]
        (tmp_path / name / "a.txt").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture
def corpus(texts: Path) -> Make:
    def make(novels: dict[str, Any] | None = None, wiki: dict[str, Any] | None = None, **changes: Any) -> Any:
        sources = {
            "wiki": text_source(texts / "wiki", **(wiki or {})),
            "novels": text_source(texts / "novels", **(novels or {})),
        }
        return validate(SourcesCorpusConfig, {**SETTINGS, "sources": sources, **changes}, where="corpus")

    return make


def ids(folder: Path, split: str) -> list[str]:
    return [document.id for document in read_documents(folder, split)]  # type: ignore[arg-type]


def test_a_weight_repeats_the_documents_of_train_and_leaves_validation_as_it_is(corpus: Make, tmp_path: Path) -> None:
    build(corpus(), tmp_path / "plain")
    build(corpus(novels={"weight": 3.0}), tmp_path / "out")

    plain = Counter(label_of(one) for one in ids(tmp_path / "plain", "train"))
    weighted = Counter(label_of(one) for one in ids(tmp_path / "out", "train"))
    assert weighted == {"novels": 3 * plain["novels"], "wiki": plain["wiki"]}
    assert len(set(ids(tmp_path / "out", "train"))) == weighted.total()
    assert ids(tmp_path / "out", "validation") == ids(tmp_path / "plain", "validation")
    texts = [{one.sentences for one in read_documents(tmp_path / "out", split)} for split in ("train", "validation")]
    assert not texts[0] & texts[1]
    validation = Counter(map(label_of, ids(tmp_path / "out", "validation")))
    assert 5 <= validation["novels"] <= 20 and 25 <= validation["wiki"] <= 55


@pytest.mark.parametrize("fraction", [1e-9, 0.3])
def test_copies_neither_count_as_documents_of_a_split_nor_get_into_validation(
    corpus: Make, texts: Path, tmp_path: Path, fraction: float
) -> None:
    """A small corpus gets both splits from different documents, though each of them is there five times."""
    for name in ("novels", "wiki"):
        lines = (texts / name / "a.txt").read_text().splitlines()
        (texts / name / "a.txt").write_text("\n".join(lines[:3]))
    fives = {"weight": 5.0}

    build(corpus(novels=fives, wiki=fives, validation_fraction=fraction), tmp_path / "out")  # fmt: skip

    train, validation = (ids(tmp_path / "out", split) for split in ("train", "validation"))
    originals = {one.partition("#")[0] for one in train}
    assert len(originals) >= 2 and len(validation) >= 2
    assert len(originals) + len(validation) == 6 and len(train) == 5 * len(originals)
    assert not [one for one in validation if "#" in one] and not originals & set(validation)


def test_a_weight_below_one_leaves_documents_out_and_takes_the_same_ones_each_time(
    corpus: Make, tmp_path: Path
) -> None:
    build(corpus(), tmp_path / "plain")
    build(corpus(wiki={"weight": 0.5}), tmp_path / "half")
    build(corpus(wiki={"weight": 0.25}), tmp_path / "quarter")

    whole, half, quarter = (set(ids(tmp_path / name, "train")) for name in ("plain", "half", "quarter"))
    assert quarter < half < whole
    assert 0.35 < len([one for one in half if label_of(one) == "wiki"]) / 160 < 0.65


def test_any_number_of_workers_writes_the_same_bytes(
    corpus: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.corpus.build.SHARD_BYTES", 1000)
    config = corpus(novels={"weight": 1.5, "language": "en"}, wiki={"language": "la"}, language_exponent=0.7)

    for number in (0, 1, 4):
        build(config, tmp_path / str(number), number)

    assert len({sha256_of_path(tmp_path / name) for name in "014"}) == 1 and len([*(tmp_path / "4").iterdir()]) > 10


def test_duplicates_are_found_across_sources_and_the_first_name_keeps_its_copy(
    corpus: Make, texts: Path, tmp_path: Path
) -> None:
    with (texts / "wiki/a.txt").open("a") as handle:
        handle.write("\nDOCUMENT 3 of novels begins here. It ends  there.\n\n")
    build(corpus(), tmp_path / "out")

    manifest = manifest_of(tmp_path / "out")
    assert drops_of(tmp_path / "out")["counts"] == {"documents/duplicate": 1}
    assert manifest["sources"]["dropped"] == {"wiki": {"documents/duplicate": 1}}
    assert manifest["sources"]["parts"]["novels"]["documents"] == 60


def test_the_counts_of_the_manifest_are_those_of_the_shards(corpus: Make, tmp_path: Path) -> None:
    build(corpus(novels={"weight": 2.0, "language": "en"}), tmp_path / "out")

    manifest = manifest_of(tmp_path / "out")
    parts = manifest["sources"]["parts"]
    for split in ("train", "validation"):
        found = Counter(map(label_of, ids(tmp_path / "out", split)))
        assert {label: part["counts"][f"{split}/documents"] for label, part in parts.items()} == found
        for name, total in manifest["counts"][split].items():
            assert sum(part["counts"][f"{split}/{name}"] for part in parts.values()) == total
    assert (parts["novels[en]"]["language"], parts["novels[en]"]["rate"], parts["wiki"]["language"]) == (
        "en",
        2.0,
        None,
    )
    assert sum(part["share"] for part in parts.values()) == pytest.approx(1, abs=1e-5)


def test_the_language_of_a_row_comes_from_a_column(texts: Path, tmp_path: Path) -> None:
    rows = [("de", 400), ("lt", 25)]
    lines = [f'{{"text": "Text {n} in {lang}. Ende.", "lang": "{lang}"}}' for lang, m in rows for n in range(m)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    reader = {"kind": "jsonl", "text_column": "text", "group_column": None, "on_undecodable": "fail", "weight": 1.0}
    source = {**reader, "path": str(tmp_path / "rows.jsonl"), "language": None, "language_column": "lang"}
    mapping = {**SETTINGS, "sources": {"web": source}, "language_exponent": 0.7, "validation_fraction": 0.0}
    config = validate(SourcesCorpusConfig, mapping)

    build(config, tmp_path / "out")

    found = Counter(map(label_of, ids(tmp_path / "out", "train")))
    share = 25**0.7 / (25**0.7 + 400**0.7)  # as of multilingual BERT
    assert found["web[lt]"] / found.total() == pytest.approx(share, abs=0.03)
    assert found.total() == pytest.approx(425, abs=25)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": {}}, r"sources is empty; add one with \+source@corpus.sources.NAME=text"),
        ({"language_exponent": 0.7}, "no language is given for wiki, novels"),
        ({"language_exponent": 1.5}, "must be above 0 and at most 1, found 1.5"),
        ({"wiki": {"weight": 0.0}}, "weight must be above 0 and below inf, found 0.0"),
        ({"wiki": {"kind": "docx"}}, "corpus.sources.wiki.kind is 'docx'; expected one of csv, hub"),
        ({"wiki": {"validation_fraction": 0.1}}, "corpus.sources.wiki.validation_fraction is not a known key"),
    ],
)
def test_what_a_configuration_gets_wrong_is_named(corpus: Make, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        corpus(**changes)
