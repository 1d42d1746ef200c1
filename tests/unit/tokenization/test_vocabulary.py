"""Reading vocabularies, ours and published ones, and refusing those that BERT cannot use."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pytest

from bertline.foundation.errors import DataError
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, read_vocab_file, read_vocabulary, resolve_folder

TOKENS = (*SPECIAL_TOKENS, "the", "cat", "##s")


def write_vocab(folder: Path, tokens: tuple[str, ...] | list[str]) -> Path:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ((*TOKENS, "cat"), r"vocab\.txt, line 9: the token 'cat' stands on line 7 too"),
        ((*TOKENS, "", "dog"), "line 9: the line is empty"),
        (("[PAD]", "[UNK]", "[CLS]", "<sep>", "the"), r"lacks \[SEP\], \[MASK\]"),
    ],
)
def test_a_file_that_bert_cannot_use_is_refused_with_its_line(tmp_path, tokens, message) -> None:
    with pytest.raises(DataError, match=message):
        read_vocab_file(write_vocab(tmp_path, tokens))


IDS = {token: index for index, token in enumerate(TOKENS)}
ADDED = [{"id": 0, "content": "[PAD]"}, {"id": len(TOKENS), "content": "<entity>"}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {"type": "BPE", "vocab": {}}}, "'BPE', expected 'WordPiece'"),
        ({"model": {"type": "WordPiece", "vocab": IDS}, "added_tokens": ADDED}, r"1 tokens \(<entity>\) were added"),
    ],
)
def test_another_model_and_tokens_beside_the_vocabulary_are_refused_by_name(tmp_path, content, message) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        read_vocabulary(tmp_path)


@pytest.mark.parametrize(
    ("extra", "declared", "lowercase"),
    [("dog", None, True), ("Dog", None, False), ("dog", False, False), ("Dog", True, True)],
)
def test_case_is_that_of_tokenizer_config_or_else_of_the_tokens(tmp_path, extra, declared, lowercase) -> None:
    write_vocab(tmp_path, [*TOKENS, extra])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": declared}))
    vocabulary = read_vocabulary(tmp_path)
    assert vocabulary.lowercase is lowercase
    assert vocabulary.tokens == (*TOKENS, extra), "the line number is the id"


@pytest.mark.parametrize("name", ["./missing", "/missing/folder", "a/b/c"])
def test_a_path_that_does_not_exist_is_not_looked_for_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(DataError, match="does not exist"):
        resolve_folder(name, None)


def test_an_installed_package_that_contains_a_model_is_its_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    folder = tmp_path / "packed_model_of_a_test" / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError")  # is not imported
    for name in ("config.json", "model.safetensors"):
        (folder / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_folder("packed-model-of-a-test") == folder


def test_a_hub_name_is_fetched_at_its_revision_without_code_or_pickles(tmp_path, monkeypatch) -> None:
    asked = {}

    def snapshot(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.update(name=name, revision=revision, patterns=allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    patterns = ["*.json", "*.txt", "*.safetensors"]
    for given in (("owner/some-bert", "refs/pr/1"), ("owner/some-bert@refs/pr/1",)):
        assert resolve_folder(*given) == tmp_path
        assert asked == {"name": "owner/some-bert", "revision": "refs/pr/1", "patterns": patterns}
        asked.clear()
