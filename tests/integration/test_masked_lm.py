"""The objective mlm from a corpus to a folder that people use: examples, training on two ranks, export, fine-tuning."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertline
import pretraining_processes as processes
from bertline.encoders.loading import load_model
from bertline.examples.build import build_examples
from bertline.export.build import build_export
from bertline.foundation.files import read_json
from bertline.pretraining.run import run_pretraining
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from corpora import write_corpus
from engines import local
from export_inputs import EXPORT
from pretraining_inputs import pretrain_job
from staged_runs import EXAMPLES
from tiny import load_masked_lm

WORDS = tuple(f"{first}{vowel}{last}" for first in "bdfgk" for vowel in "aeiou" for last in "lrst")
MLM = {
    "objective": {"kind": "mlm"},
    "model__hidden_dropout_prob": 0.0,
    "model__attention_probs_dropout_prob": 0.0,
    "pretrain__phases": [{"steps": 300, "max_length": 16, "global_batch_size": 16}],
    "pretrain__mask_predictions": {"every_steps": 100, "num_guesses": 3, "sentences": ["bal bar [MASK] bat."]},
}


def sentence(rng: random.Random) -> str:
    """Words in the order of the vocabulary, so that those around a blank tell which word it was."""
    first = rng.randrange(len(WORDS))
    return " ".join(WORDS[(first + number) % len(WORDS)] for number in range(rng.randint(4, 20))) + " ."


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tokenizer/` and `examples/` of full sentences."""
    folder, rng = tmp_path_factory.mktemp("inputs"), random.Random(0)
    save_tokenizer(Tokenizer(Vocabulary(tokens=(*SPECIAL_TOKENS, *WORDS, "."), lowercase=True)), folder / "tokenizer")
    documents = [[sentence(rng) for _ in range(rng.randint(1, 6))] for _ in range(230)]
    write_corpus(folder / "corpus", documents[:200], documents[200:], shard_documents=100)
    config = replace(EXAMPLES, lengths=(16,), random_next_prob=None, short_sequence_prob=0.0)
    build_examples(config, folder / "tokenizer", folder / "corpus", folder / "examples", **local(folder / "examples"))
    return folder


def test_from_examples_to_a_model_that_fills_blanks(inputs: Path, tmp_path: Path) -> None:
    job = pretrain_job(inputs, tmp_path / "run", **MLM)
    figures = run_pretraining(job)
    assert figures["val/mlm_loss"] < figures["unigram_entropy"] - 0.1

    build_export(EXPORT, pretrain_folder=job.result_folder, sweep_folders={}, pipeline_facts={}, out=tmp_path / "out")
    encoder = tmp_path / "out/encoder"
    assert read_json(encoder / "config.json")["architectures"] == ["BertForMaskedLM"]
    (guesses,) = bertline.load(str(encoder), device="cpu").fill_mask("bal bar [MASK] bat .", top_k=20)
    theirs = transformers.pipeline("fill-mask", model=str(encoder), device="cpu")("bal bar [MASK] bat .", top_k=1)
    assert guesses[0].token == theirs[0]["token_str"]
    assert guesses[0].probability == pytest.approx(theirs[0]["score"], abs=1e-5)

    classifier = load_model(job.result_folder, "sequence", num_outputs=2, is_new=True)
    pretrained = load_masked_lm(job.result_folder).bert.state_dict()
    found = classifier.bert.state_dict()
    assert set(found) - set(pretrained) == {"pooler.weight", "pooler.bias"}
    assert all(torch.equal(found[name], pretrained[name]) for name in pretrained)
    assert np.isfinite(classifier(torch.tensor([[2, 5, 3]]), torch.zeros(1, 3, dtype=torch.long)).detach()).all()


def test_two_ranks_train_the_same_model_as_one(inputs: Path, tmp_path: Path) -> None:
    changes = {**MLM, "pretrain__phases": [{"steps": 20, "max_length": 16, "global_batch_size": 16}]}
    alone = pretrain_job(inputs, tmp_path / "alone", **changes)
    run_pretraining(alone)
    processes.finish(*processes.start_ranks(inputs, [tmp_path / "two"] * 2, changes))
    expected = load_masked_lm(alone.result_folder).state_dict()
    for name, tensor in load_masked_lm(tmp_path / "two/result").state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-5, msg=name)
