"""A tiny encoder and a tiny classifier, with a vocabulary of a few words, in folders as a finished line leaves them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import tiny
from bertline.inference.loading import load
from bertline.inference.model import LoadedModel
from bertline.modeling.bert import BertForSequenceClassification
from bertline.modeling.huggingface import save_model
from bertline.modeling.initialization import initialize
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from finished_tasks import Finished, finish

WORDS = ("the", "cat", "sat", "on", "mat", "a", "dog", "##s", "cafe", ".", ",", "[", "]", "mask")
TOKENS = (*SPECIAL_TOKENS, *WORDS)
# Weights far from uniform guesses.
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 12}
SIZES |= {"initializer_range": 0.5}
CONFIG = tiny.model_config(**SIZES)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_encoder(tmp_path_factory.mktemp("encoder"), heads=True, seed=3, words=WORDS, **SIZES)


@pytest.fixture(scope="session")
def classifier_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    model = BertForSequenceClassification(
        CONFIG, vocab_size=len(TOKENS), pad_token_id=0, num_labels=3, classifier_dropout=0.1
    )
    initialize(model, CONFIG, seed=4)
    save_model(model, folder, id2label={0: "animal", 1: "place", 2: "thing"})
    save_tokenizer(Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True)), folder)
    return folder


@pytest.fixture(scope="session")
def model(classifier_folder: Path) -> LoadedModel:
    """The classifier, loaded; tests leave it as it is."""
    return load(str(classifier_folder), device="cpu")


@pytest.fixture(scope="session")
def open_task(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Finished, LoadedModel]]:
    """A finished task by its name in `finished_tasks.KINDS`, and its model as loaded."""

    @cache
    def get(name: str) -> tuple[Finished, LoadedModel]:
        finished = finish(name, tmp_path_factory.mktemp(name))
        return finished, load(str(finished.folder), device="cpu")

    return get
