"""The tokenizer stage, and its report on how well a vocabulary fits a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bertline.foundation.errors import DataError
from bertline.foundation.files import sha256_of_path
from bertline.tokenization.config import ExistingTokenizerConfig
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary


def test_a_trained_vocabulary_has_the_size_asked_for_lower_cases_and_is_judged_on_validation(build, config) -> None:
    built = build(config)
    tokenizer, manifest = built.tokenizer, built.manifest
    assert built.headline["vocab_size"] == tokenizer.vocab_size == 110
    assert tokenizer.vocab[:5] == SPECIAL_TOKENS
    assert tokenizer.tokens(tokenizer.encode("The matrix")) == ["the", "matrix"]
    assert tokenizer.encode("CAFÉ") == tokenizer.encode("cafe")
    assert (manifest["kind"], manifest["format_version"]) == ("tokenizer", 1)
    assert manifest["special_ids"] == {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    quality = manifest["quality"]
    assert (quality["split"], quality["words"], quality["unknown_characters"]) == ("validation", 11, {"☃": 1})


def test_the_bytes_are_the_same_with_one_worker_and_with_two(build, config, monkeypatch) -> None:
    monkeypatch.setattr("bertline.tokenization.counting._BATCH_CHARACTERS", 500)
    one, two = (build(config, str(workers), workers=workers) for workers in (1, 2))
    assert sha256_of_path(one.folder) == sha256_of_path(two.folder)


def test_a_sample_takes_about_its_share_and_the_same_documents_each_time(build, config, texts) -> None:
    total = sum(len(sentence) for document in texts * 20 for sentence in document)
    quarter = replace(config, sample_characters=total // 4)
    words = [
        build(chosen, name, train=texts * 20).manifest["trained_on"]["words"]
        for name, chosen in (("a", quarter), ("b", quarter), ("all", config))
    ]
    assert words[0] == words[1]
    assert 0.18 < words[0] / words[2] < 0.32


def test_a_size_the_text_does_not_support_is_an_error_and_keeps_the_old_result(build, config) -> None:
    before = sha256_of_path(build(config).folder)
    with pytest.raises(DataError, match=r"tokenizer\.vocab_size is 5000, but the text supports only \d+ tokens"):
        build(replace(config, vocab_size=5000))
    assert sha256_of_path(build(config).folder) == before


def test_a_given_folder_keeps_its_ids_and_its_case(build, tmp_path: Path) -> None:
    tokens = ("[PAD]", "[unused0]", *SPECIAL_TOKENS[1:], "The", "tensor", "##s")
    save_tokenizer(Tokenizer(Vocabulary(tokens=tokens, lowercase=False)), tmp_path / "given")
    given = ExistingTokenizerConfig(
        kind="existing", path=str(tmp_path / "given"), revision=None, lowercase=None, user_words=(), compare=()
    )
    tokenizer = build(given).tokenizer
    assert tokenizer.vocab == tokens
    assert not tokenizer.vocabulary.lowercase


def test_marks_that_are_vowels_are_kept_under_auto_and_said(build, config, texts, capsys) -> None:
    hindi = "यह घर में है और मैं घर से बाहर हूँ. हम कल किताब पढ़ेंगे."
    text = [[*[hindi] * 3, *(sentence for sentences in texts for sentence in sentences)]]
    built = build(replace(config, max_alphabet=1000), train=text, validation=text)
    tokenizer = built.tokenizer
    assert tokenizer.encode("में") != tokenizer.encode("म")
    assert tokenizer.vocabulary.strip_accents is False and tokenizer.vocabulary.lowercase
    assert list(built.manifest["kept_marks"]) == ["Devanagari"]
    assert "accents are kept" in capsys.readouterr().out
