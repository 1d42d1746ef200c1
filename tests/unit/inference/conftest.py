"""A tiny encoder and a tiny classifier, with a vocabulary of a few words, in folders as a finished line leaves them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import tiny
from bertline.inference.loading import load_folder
from bertline.inference.model import LoadedModel
from finished_tasks import Finished, finish

WORDS = ("the", "cat", "sat", "on", "mat", "a", "dog", "##s", "cafe", ".", ",", "[", "]", "mask")
# Weights far from uniform guesses.
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 12}
SIZES |= {"initializer_range": 0.5}


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_encoder(tmp_path_factory.mktemp("encoder"), heads=True, seed=3, words=WORDS, **SIZES)


@pytest.fixture(scope="session")
def classifier_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    return tiny.write_classifier(folder, ("animal", "place", "thing"), seed=4, words=WORDS, **SIZES)


@pytest.fixture(scope="session")
def model(classifier_folder: Path) -> LoadedModel:
    """The classifier, loaded; tests leave it as it is."""
    return load_folder(str(classifier_folder), device="cpu")


@pytest.fixture(scope="session")
def open_task(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Finished, LoadedModel]]:
    """A finished task by its name in `finished_tasks.KINDS`, and its model as loaded."""

    @cache
    def get(name: str) -> tuple[Finished, LoadedModel]:
        finished = finish(name, tmp_path_factory.mktemp(name))
        return finished, load_folder(str(finished.folder), device="cpu")

    return get
