import numpy as np
import pytest
import torch

import tiny
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.initialization import initialize
from bertline.pretraining.data import MaskedExamples
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.objectives.sentence_pairs import MlmNsp
from bertline.pretraining.plan import Plan
from bertline.pretraining.probes import ValidationProbe
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine, Ranks


@pytest.fixture
def losses(make_job):
    job = make_job()
    tokenizer = Tokenizer.load(job.tokenizer_folder)
    model = BertForPreTraining(job.model, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id)
    initialize(model, job.model, seed=3)
    return PreTrainingLosses(model, tiny.mlm_nsp())


def probe_of(losses, job, max_sequences=100) -> ValidationProbe:
    machine = Machine(device=torch.device("cpu"), precision="fp32", compile=False, ranks=Ranks())
    return ValidationProbe(
        losses,
        job.examples_folder,
        Plan.of(job.pretrain),
        machine=machine,
        every_steps=5,
        max_sequences=max_sequences,
    )


def test_figures_are_exact_sums_over_all_held_out_targets(losses, make_job):
    job = make_job()
    examples = MaskedExamples(job.examples_folder, "validation", 16)
    batch = {key: torch.from_numpy(value) for key, value in examples.batch(np.arange(len(examples)), epoch=0).items()}
    losses.eval()
    sums = losses(batch)
    targets = (batch["masked_labels"] != -100).sum()
    figures = probe_of(losses, job).probe(0)
    assert figures["val/mlm_loss"] == pytest.approx((sums["mlm_loss"] / targets).item(), rel=1e-6)
    assert figures["val/mlm_accuracy"] == pytest.approx((sums["mlm_correct"] / targets).item())
    assert figures["val/nsp_accuracy"] == pytest.approx((sums["nsp_correct"] / len(examples)).item())


def test_sums_are_found_by_name_in_whatever_order_the_objective_returns_them(losses, make_job):
    class Reversed(MlmNsp):
        def sums(self, output, batch):
            return dict(reversed(MlmNsp.sums(self, output, batch).items()))

    expected = probe_of(losses, make_job()).probe(0)
    backwards = PreTrainingLosses(losses.model, Reversed(kind="mlm_nsp", nsp_weight=1.0))
    assert probe_of(backwards, make_job()).probe(0) == expected


def test_batch_size_does_not_matter(losses, make_job, monkeypatch):
    whole = probe_of(losses, make_job()).probe(0)
    monkeypatch.setattr("bertline.pretraining.probes._BATCH_TOKENS", 5 * 16)
    assert probe_of(losses, make_job()).probe(0) == pytest.approx(whole, rel=1e-6)


def test_the_same_sequences_with_the_same_masks_each_time(losses, make_job):
    probe = probe_of(losses, make_job(), max_sequences=7)
    assert probe.probe(5) == probe.probe(10)
    other_seed = probe_of(losses, make_job(pretrain__seed=99), max_sequences=7)
    assert other_seed.probe(5) == probe.probe(5)


def test_the_length_is_that_of_the_phase(losses, make_job):
    phases = [
        {"steps": 5, "max_length": 16, "global_batch_size": 8},
        {"steps": 5, "max_length": 24, "global_batch_size": 4},
    ]
    both = probe_of(losses, make_job(pretrain__phases=phases))
    long = probe_of(losses, make_job(pretrain__phases=phases[1:]))
    assert both.probe(5) != both.probe(6)
    assert both.probe(6) == long.probe(1)
