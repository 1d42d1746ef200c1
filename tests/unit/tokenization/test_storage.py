"""Tokenizer files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertline.tokenization.storage import copy_tokenizer, save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

TOKENS = (*SPECIAL_TOKENS, "cat", "Cat", "##s")


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kept", [["tokenizer.json", "vocab.txt", "tokenizer_config.json"], ["tokenizer.json"]])
def test_what_is_saved_loads_the_same(tmp_path: Path, lowercase: bool, kept: list[str]) -> None:
    vocabulary = Vocabulary(tokens=TOKENS, lowercase=lowercase)
    save_tokenizer(Tokenizer(vocabulary), tmp_path)
    for path in tmp_path.iterdir():
        if path.name not in kept:
            path.unlink()
    loaded = Tokenizer.load(tmp_path)
    assert loaded.vocabulary == vocabulary
    assert loaded.encode("Cats cat") == Tokenizer(vocabulary).encode("Cats cat")


def test_the_configuration_always_says_whether_text_is_lower_cased(tmp_path: Path) -> None:
    save_tokenizer(Tokenizer(Vocabulary(tokens=TOKENS, lowercase=False)), tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["do_lower_case"] is False


def test_transformers_is_told_where_a_model_has_a_single_token_type(tmp_path: Path) -> None:
    source = tmp_path / "source"
    save_tokenizer(Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True)), source)
    for num_types, expected in ((1, ["input_ids", "attention_mask"]), (6, None)):
        target = tmp_path / str(num_types)
        target.mkdir()
        (target / "config.json").write_text(json.dumps({"type_vocab_size": num_types}))
        copy_tokenizer(source, target)
        assert json.loads((target / "tokenizer_config.json").read_text()).get("model_input_names") == expected
        source = target  # its setting was that of another model
