"""A checkpoint taken as it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertline.encoders.loading import load_encoder
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json
from bertline.pretraining.job import take_checkpoint
from bertline.tokenization.tokenizer import Tokenizer
from tiny import WORDS, load_pretraining_model, write_encoder, write_vocabulary


def starting_from(folder: Path) -> Any:
    """What is read of the configuration of a pretraining."""
    return SimpleNamespace(start_from=str(folder), start_from_revision=None)


@pytest.mark.parametrize("heads", [True, False])
def test_the_weights_and_the_vocabulary_are_those_of_the_checkpoint(tmp_path: Path, heads: bool) -> None:
    source = write_encoder(tmp_path / "source", heads=heads)
    figures = take_checkpoint(starting_from(source), tmp_path / "out")
    load = load_pretraining_model if heads else load_encoder
    ours, theirs = (load(folder).state_dict() for folder in (tmp_path / "out", source))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert Tokenizer.load(tmp_path / "out").vocab == Tokenizer.load(source).vocab
    manifest = read_json(tmp_path / "out" / "manifest.json")
    assert (manifest["taken_from"], manifest["heads"]) == ("the local checkpoint source", heads)
    assert figures["num_hidden_layers"] == 2


def test_a_vocabulary_larger_than_the_embeddings_is_refused(tmp_path: Path) -> None:
    source = write_encoder(tmp_path / "source")
    write_vocabulary(source, (*WORDS, "one", "more"))
    with pytest.raises(ArtifactError, match=r"tokenizer has 47 tokens, the embeddings only 45 rows"):
        take_checkpoint(starting_from(source), tmp_path / "out")
    assert not (tmp_path / "out").exists()
