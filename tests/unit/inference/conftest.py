"""A tiny encoder and a tiny classifier, with a vocabulary of a few words, in folders as a finished line leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from bertline.modeling.bert import BertForPreTraining, BertForSequenceClassification
from bertline.modeling.huggingface import save_model
from bertline.modeling.initialization import initialize
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

WORDS = ("the", "cat", "sat", "on", "mat", "a", "dog", "##s", "cafe", ".", ",", "[", "]", "mask")
TOKENS = (*SPECIAL_TOKENS, *WORDS)
# Weights far from uniform guesses.
CONFIG = tiny.model_config(
    hidden_size=16, num_attention_heads=2, intermediate_size=32, max_position_embeddings=12, initializer_range=0.5
)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    model = BertForPreTraining(CONFIG, vocab_size=len(TOKENS), pad_token_id=0)
    initialize(model, CONFIG, seed=3)
    save_model(model, folder)
    save_tokenizer(Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True)), folder)
    return folder


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
