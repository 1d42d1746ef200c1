"""The tokenizer stage, and its report on how well a vocabulary fits a text."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from bertline.foundation.errors import DataError
from bertline.foundation.files import sha256_of_path
from bertline.tokenization.build import build_tokenizer
from bertline.tokenization.config import ExistingTokenizerConfig, TrainedTokenizerConfig
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from engines import local

CONFIG = TrainedTokenizerConfig(
    kind="trained",
    vocab_size=110,
    lowercase=True,
    strip_accents=None,
    min_frequency=1,
    max_alphabet=60,
    sample_characters=1_000_000,
    user_words=(),
    compare=(),
)

TRAIN = [
    [f"The {noun}s {verb} the array of the {noun}.", f"{verb.title()}ing a {noun} returns another {noun}, or none."]
    for noun in ("matrix", "vector", "kernel", "frame", "series", "tensor", "index", "café")
    for verb in ("sort", "filter", "reshape", "compute", "transform")
]
VALIDATION = [["A sorted tensor returns ☃ the Café."], ["Nothing else."]]


def existing(path: Path, lowercase: bool | None = None) -> ExistingTokenizerConfig:
    return ExistingTokenizerConfig(
        kind="existing", path=str(path), revision=None, lowercase=lowercase, user_words=(), compare=()
    )


def test_a_trained_vocabulary_has_the_size_asked_for_and_lower_cases(write_corpus, tmp_path: Path) -> None:
    headline = build_tokenizer(CONFIG, write_corpus(TRAIN, VALIDATION), tmp_path / "out", **local(tmp_path / "out"))
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert headline["vocab_size"] == tokenizer.vocab_size == 110
    assert tokenizer.vocab[:5] == SPECIAL_TOKENS
    assert tokenizer.tokens(tokenizer.encode("The matrix")) == ["the", "matrix"]
    assert tokenizer.encode("CAFÉ") == tokenizer.encode("cafe")


def test_the_bytes_are_the_same_with_one_worker_and_with_two(write_corpus, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("bertline.tokenization.counting._BATCH_CHARACTERS", 500)
    corpus = write_corpus(TRAIN, VALIDATION)
    for workers in (1, 2):
        build_tokenizer(CONFIG, corpus, tmp_path / str(workers), **local(tmp_path / str(workers), workers))
    assert sha256_of_path(tmp_path / "1") == sha256_of_path(tmp_path / "2")


def test_the_manifest_reports_quality_on_validation(write_corpus, tmp_path: Path) -> None:
    build_tokenizer(CONFIG, write_corpus(TRAIN, VALIDATION), tmp_path / "out", **local(tmp_path / "out"))
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (manifest["kind"], manifest["format_version"]) == ("tokenizer", 1)
    assert manifest["special_ids"] == {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    assert manifest["quality"]["split"] == "validation"
    assert manifest["quality"]["words"] == 11
    assert manifest["quality"]["unknown_characters"] == {"☃": 1}


def test_a_sample_takes_about_its_share_and_the_same_documents_each_time(write_corpus, tmp_path: Path) -> None:
    corpus = write_corpus(TRAIN * 20, VALIDATION)
    total = sum(len(sentence) for document in TRAIN * 20 for sentence in document)
    config = dataclasses.replace(CONFIG, sample_characters=total // 4)
    words = []
    for name in ("a", "b"):
        build_tokenizer(config, corpus, tmp_path / name, **local(tmp_path / name))
        words.append(json.loads((tmp_path / name / "manifest.json").read_text())["trained_on"]["words"])
    build_tokenizer(CONFIG, corpus, tmp_path / "all", **local(tmp_path / "all"))
    all_words = json.loads((tmp_path / "all/manifest.json").read_text())["trained_on"]["words"]
    assert words[0] == words[1]
    assert 0.18 < words[0] / all_words < 0.32


def test_a_size_the_text_does_not_support_is_an_error_and_keeps_the_old_result(write_corpus, tmp_path: Path) -> None:
    corpus = write_corpus(TRAIN, VALIDATION)
    build_tokenizer(CONFIG, corpus, tmp_path / "out", **local(tmp_path / "out"))
    before = sha256_of_path(tmp_path / "out")
    with pytest.raises(DataError, match=r"tokenizer\.vocab_size is 5000, but the text supports only \d+ tokens"):
        build_tokenizer(
            dataclasses.replace(CONFIG, vocab_size=5000), corpus, tmp_path / "out", **local(tmp_path / "out")
        )
    assert sha256_of_path(tmp_path / "out") == before


def test_a_given_folder_keeps_its_ids_and_its_case(write_corpus, tmp_path: Path) -> None:
    tokens = ("[PAD]", "[unused0]", *SPECIAL_TOKENS[1:], "The", "tensor", "##s")
    save_tokenizer(Tokenizer(Vocabulary(tokens=tokens, lowercase=False)), tmp_path / "given")
    build_tokenizer(
        existing(tmp_path / "given"), write_corpus(TRAIN, VALIDATION), tmp_path / "out", **local(tmp_path / "out")
    )
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert tokenizer.vocab == tokens
    assert not tokenizer.vocabulary.lowercase


HINDI = "यह घर में है और मैं घर से बाहर हूँ. हम कल किताब पढ़ेंगे."
ENGLISH = [sentence for sentences in TRAIN for sentence in sentences]


def built(write_corpus, tmp_path: Path, texts: list[str], **changes: object) -> tuple[Tokenizer, dict]:
    settings = {"max_alphabet": 1000, **changes}
    build_tokenizer(
        dataclasses.replace(CONFIG, **settings),
        write_corpus([texts], [texts]),
        tmp_path / "out",
        **local(tmp_path / "out"),
    )
    return Tokenizer.load(tmp_path / "out"), json.loads((tmp_path / "out/manifest.json").read_text())


def test_marks_that_are_vowels_are_kept_under_auto_and_said(write_corpus, tmp_path: Path, capsys) -> None:
    tokenizer, manifest = built(write_corpus, tmp_path, [*[HINDI] * 3, *ENGLISH])
    assert tokenizer.encode("में") != tokenizer.encode("म")
    assert tokenizer.vocabulary.strip_accents is False and tokenizer.vocabulary.lowercase
    assert list(manifest["kept_marks"]) == ["Devanagari"]
    assert "accents are kept" in capsys.readouterr().out
