"""Replaced token detection: the detector learns."""

from __future__ import annotations

import dataclasses
import math

import pytest

import tiny
from bertline.encoders.wrapped import model_section
from bertline.foundation.validation import validate
from bertline.modeling.config import ModelConfig
from bertline.pretraining.run import run_pretraining

# Sizes and a rate with which the figures are several times those asked for: at 0.005 no detector of this size learns.
ELECTRA = {
    "family": "electra", "embedding_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "max_position_embeddings": 32, "initializer_range": 0.1, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_the_detector_learns_to_tell_replaced_tokens(pretraining, tmp_path, seed) -> None:
    pretraining.write_inputs(tmp_path, num_segments=1, num_train=2000, num_validation=100)
    job = pretraining.pretrain_job(
        tmp_path,
        tmp_path / "run",
        model=dataclasses.asdict(validate(ModelConfig, model_section(ELECTRA))),
        objective={"kind": "replaced_token", "generator_width": 0.5, "detection_weight": 1.0},
        runtime=tiny.runtime_section(packing="off"),
        pretrain__phases=[{"steps": 650, "max_length": 16, "global_batch_size": 32}],
        pretrain__seed=seed,
        optimizer__lr=2e-3,
    )
    figures = run_pretraining(job)
    share = figures["val/unreplaced_share"]
    assert figures["val/detection_loss"] < -sum(part * math.log(part) for part in (share, 1 - share)) - 0.05
    assert figures["val/detection_accuracy"] > share + 0.01
