"""The probe of attention heads during training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import planted_heads
import tiny
from bertline.pretraining.config import HeadProbeConfig
from bertline.pretraining.probes import HeadProbe
from bertline.pretraining.run import run_pretraining
from pretraining_inputs import assert_resumes_to_the_same_bits, assert_same_weights, curve, weights


@pytest.fixture
def treebank(tmp_path):
    return planted_heads.write_treebank(tmp_path / "dev.conllu", 120, seed=1)


def test_it_says_how_often_the_best_head_finds_a_relation_and_leaves_the_model_as_it_was(tmp_path, treebank):
    tokenizer = planted_heads.tokenizer(tmp_path)
    config = HeadProbeConfig(treebank=str(treebank), every_steps=5, max_sentences=100)
    encoder = planted_heads.Planted(tokenizer.vocab_size).train()
    state = torch.get_rng_state()
    found = HeadProbe(SimpleNamespace(bert=encoder), tokenizer, config, 16, tiny.machine()).probe(5)
    assert found["probe/heads/obj"] == found["probe/heads/det"] == 1
    names = ("obj", "det", "dep")
    assert found["probe/heads/mean"] == pytest.approx(sum(found[f"probe/heads/{name}"] for name in names) / 3)
    assert found["probe/heads/offset"] < 0.5 and set(found) == {
        f"probe/heads/{name}" for name in (*names, "mean", "offset", "all")
    }
    assert encoder.training and torch.equal(state, torch.get_rng_state())


def test_a_run_measures_at_its_steps_resumes_with_one_clean_curve_and_trains_as_without(
    pretraining, tmp_path, monkeypatch
):
    treebank = planted_heads.write_treebank(tmp_path / "plain.conllu", 120, seed=1, plain=True)
    pretraining.write_inputs(tmp_path / "inputs")

    def job(run, probe):
        return pretraining.pretrain_job(tmp_path / "inputs", tmp_path / run, pretrain__head_probe=probe)

    probe = {"treebank": str(treebank), "every_steps": 10, "max_sentences": 80}
    probed, alone = job("probed", probe), job("alone", None)
    figures = assert_resumes_to_the_same_bits(probed, job("stopped", probe), HeadProbe, 10, monkeypatch)
    run_pretraining(alone)
    measured = {step: metrics["probe/heads/all"] for step, metrics in curve(probed) if "probe/heads/all" in metrics}
    assert list(measured) == [0, 10, 20, 30] and figures["probe/heads/all"] == measured[30]
    assert not any(key.startswith("probe/") for _, metrics in curve(alone) for key in metrics)
    assert_same_weights(weights(probed), weights(alone))
