"""Contrastive learning: the same groups give the same loss, whatever the rows, the micro-batches and the ranks."""

import dataclasses

import pytest
import torch

import pretraining_inputs
import tiny
from bertline.encoders.loading import load_encoder, save_model
from bertline.foundation.errors import ConfigError
from bertline.modeling.bert import BertModel
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.heads import pooled, pooled_packed
from bertline.modeling.initialization import initialize
from bertline.modeling.losses import info_nce_sums
from bertline.pretraining.data import MaskedExamples, StepDataset
from bertline.pretraining.objectives import objective_from
from bertline.pretraining.plan import Plan, RowLayout
from bertline.pretraining.probes import ValidationProbe
from bertline.pretraining.run import run_pretraining
from bertline.tokenization.storage import copy_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Ranks
from pretraining_inputs import losses_of
from tiny import load_masked_lm


def test_each_group_is_compared_alone_and_each_segment_encoded_alone(make_contrastive):
    job = make_contrastive()
    examples = MaskedExamples(job.examples_folder, "train", 24, pairs_together=4)
    losses = losses_of(job)
    batch = {
        name: torch.from_numpy(values) for name, values in examples.batch(torch.arange(8).numpy(), epoch=0).items()
    }
    expected, all_used = torch.zeros(()), torch.ones(4, dtype=torch.bool)
    vectors = []
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
        real = ids[mask.bool()][None]
        states = losses.model.bert(real, torch.zeros_like(real)).hidden_states
        vectors.append(states[0].mean(0))
    for group in torch.stack(vectors).split(8):
        expected = expected + info_nce_sums(group[::2], group[1::2], all_used, temperature=0.05)[0]
    torch.testing.assert_close(losses(batch)["contrastive_loss"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_packed_sequences_are_pooled_like_padded_ones(pooling):
    states = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    sequence_ids = torch.tensor([[1, 1, 2, 2, 2], [3, 0, 0, 0, 0]])
    flat = states.flatten(0, 1)
    found = pooled_packed(flat, sequence_ids, torch.tensor([0, 2, 5, 0]), pooling)
    for index, (start, end) in enumerate([(0, 2), (2, 5), (5, 6)]):
        one = flat[None, start:end]
        torch.testing.assert_close(found[index], pooled(one, torch.ones(1, end - start), pooling)[0])
    assert found.isfinite().all()


def test_a_sentence_encoder_keeps_its_pooler_for_classifiers(make_contrastive, tmp_path, capsys):
    job = make_contrastive(pretrain__max_steps=2)
    tokenizer = Tokenizer.load(job.tokenizer_folder)
    encoder = BertModel(job.model, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id)
    initialize(encoder, job.model, seed=3)
    save_model(encoder, tmp_path / "start")
    copy_tokenizer(job.tokenizer_folder, tmp_path / "start")
    run_pretraining(dataclasses.replace(job, start_from_folder=tmp_path / "start"))
    found = load_encoder(job.result_folder)
    assert torch.equal(found.pooler.weight, encoder.pooler.weight)
    assert not torch.equal(found.layers[0].query_key_value.weight, encoder.layers[0].query_key_value.weight)
    assert Checkpoint.open(job.result_folder).architecture == "BertForMaskedLM"
    load_masked_lm(job.result_folder)
    assert "lacks" not in capsys.readouterr().err


def test_neighbours_come_together_and_every_one_once_in_an_epoch(make_contrastive):
    phases = [{"steps": 15, "max_length": 24, "global_batch_size": 8}]
    job = make_contrastive(pretrain__phases=phases)
    examples = MaskedExamples(job.examples_folder, "train", 24, pairs_together=4, neighbours=4)
    asked = []
    examples.batch = lambda indices, epoch: (
        asked.extend(indices.tolist()) or MaskedExamples.batch(examples, indices, epoch=epoch)
    )
    layouts = {24: RowLayout(packed=True, rows=None)}
    steps = StepDataset(Plan.of(job.pretrain), {24: examples}, layouts, ranks=Ranks(), seed=0)
    for step in range(len(steps)):
        steps[step]
    groups = [asked[start : start + 4] for start in range(0, len(asked), 4)]
    assert all(group == list(range(group[0], group[0] + 4)) and group[0] % 4 == 0 for group in groups)
    assert sorted(asked) == list(range(120))
    assert asked != sorted(asked)


def test_validation_has_whole_groups_and_counts_pairs(make_contrastive):
    job = make_contrastive()
    losses, plan = losses_of(job), Plan.of(job.pretrain)
    settings = {"machine": tiny.machine(), "every_steps": 1, "max_sequences": 11}
    probe = ValidationProbe(losses, job.examples_folder, plan, **settings)
    examples = MaskedExamples(job.examples_folder, "validation", 24, pairs_together=4)
    batches = list(probe._batches(examples))
    assert sum(len(batch["input_ids"]) for batch in batches) == 2 * 8
    sums = [losses({name: torch.from_numpy(values) for name, values in batch.items()}) for batch in batches]
    expected = sum(float(one["contrastive_loss"].detach()) for one in sums) / 8
    assert probe.probe(1)["val/contrastive_loss"] == pytest.approx(expected, rel=1e-6)


def test_pairs_with_random_segments_are_refused(pretraining, inputs, tmp_path):
    job = pretraining.pretrain_job(inputs, tmp_path / "run", objective=pretraining_inputs.CONTRASTIVE)
    with pytest.raises(ConfigError, match=r"random_next_prob is 0.5.*Use examples=segment_pairs"):
        run_pretraining(job)


def test_a_step_without_whole_groups_on_each_rank_is_refused():
    objective = objective_from(pretraining_inputs.CONTRASTIVE)
    examples = {"random_next_prob": 0.0}
    assert not list(objective.problems(examples, [8, 16], model=tiny.model_config(), num_ranks=2))
    (problem,) = objective.problems(examples, [8, 12], model=tiny.model_config(), num_ranks=2)
    assert "phases[1].global_batch_size is 12, not a multiple of objective.group_size (4) on 2 devices" in problem
