"""The vocabulary page of a stage whose tokenizer has no WordPiece vocabulary."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers

from bertline.orchestration.vocabulary_page import show_vocabulary


def test_the_page_of_another_tokenizer_says_which_one_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = tokenizers.ByteLevelBPETokenizer()
    backend.train_from_iterator(["a b"], vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    logged: list[Path] = []
    stage: Any = SimpleNamespace(
        config=SimpleNamespace(tokenizer=SimpleNamespace(compare=())),
        stage=SimpleNamespace(page="artifacts/pages/vocabulary.html"),
        output=tmp_path,
        folder=tmp_path,
        record=SimpleNamespace(log_artifact=lambda path, contains_text: logged.append(path)),
    )
    page = show_vocabulary(stage)
    assert "tokenizer.compare are for WordPiece, and this is BPE" in page.read_text(encoding="utf-8")
    assert "are for WordPiece" in " ".join(capsys.readouterr().out.split())
    assert logged == [tmp_path / "vocabulary.html"]
