"""From a name to a folder."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest

from bertline.foundation.errors import DataError
from bertline.tokenization.vocabulary import resolve_folder


def test_an_existing_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    assert resolve_folder(str(tmp_path), None) == tmp_path


@pytest.mark.parametrize("name", ["./missing", "/missing/folder", "a/b/c"])
def test_a_path_that_does_not_exist_is_not_looked_for_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the hub"))
    with pytest.raises(DataError, match="does not exist"):
        resolve_folder(name, None)


def test_a_hub_name_is_fetched_at_its_revision_without_code_or_pickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {}

    def snapshot(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.update(name=name, revision=revision, patterns=allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert resolve_folder("owner/some-bert", "abc123") == tmp_path
    assert asked == {"name": "owner/some-bert", "revision": "abc123", "patterns": ["*.json", "*.txt", "*.safetensors"]}


def test_an_unreachable_hub_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> str:
        raise OSError("Name or service not known\nand a long story")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(DataError, match=r"at revision v1 \(OSError: Name or service not known\).*go online"):
        resolve_folder("owner/some-bert", "v1")
