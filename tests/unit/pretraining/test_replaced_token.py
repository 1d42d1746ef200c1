"""Replaced token detection: picks, loss and labels, exact resumption, one and two ranks, and what is exported."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
import transformers
from hydra import compose, initialize_config_dir
from hypothesis import given, settings
from hypothesis import strategies as st

import pretraining_processes as processes
import tiny
from bertline.encoders.wrapped import model_section
from bertline.examples.masking import target_draws
from bertline.export.build import build_export
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.validation import validate
from bertline.modeling.config import ModelConfig
from bertline.modeling.losses import replaced_token_sums, sampled_tokens
from bertline.modeling.weight_files import read_weights
from bertline.pretraining.data import expanded
from bertline.pretraining.plan import RowLayout
from bertline.pretraining.probes import ValidationProbe
from bertline.pretraining.run import run_pretraining
from bertline.pretraining.start import build_model
from bertline.tokenization.tokenizer import Tokenizer
from export_inputs import EXPORT
from pretraining_inputs import assert_resumes_to_the_same_bits, steps_of
from shipped_tasks import CONF

ELECTRA = {
    "family": "electra", "embedding_size": 12, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 24, "max_position_embeddings": 32, "hidden_dropout_prob": 0.1,
}  # fmt: skip
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
OBJECTIVE = {"kind": "replaced_token", "generator_width": 0.5, "detection_weight": 50.0}


def changes(**model) -> dict:
    section = dataclasses.asdict(validate(ModelConfig, model_section({**ELECTRA, **model})))
    return {"model": section, "objective": OBJECTIVE, "runtime": tiny.runtime_section(packing="off")}


@pytest.fixture
def make(make_mlm):
    """A maker of jobs with the objective replaced_token."""
    return lambda run="run", model=None, **more: make_mlm(run, **{**changes(**(model or {})), **more})


@pytest.mark.parametrize(("hidden_size", "weight"), [(128, 1.0), (256, 1.0), (768, 50.0)])
def test_the_default_weight_of_a_small_detector_is_the_one_with_which_it_learns(hidden_size, weight):
    overrides = ["objective=replaced_token", "model=electra_small", f"model.hidden_size={hidden_size}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert compose("config", overrides).objective.detection_weight == weight


def a_batch(job) -> dict[str, torch.Tensor]:
    return expanded(steps_of(job, RowLayout(packed=False, rows=None))[0]["micro_batches"][0])


@settings(max_examples=60)
@given(shares=st.lists(st.floats(0.01, 1), min_size=2, max_size=9), draw=st.integers(0, 2**31 - 1))
def test_a_pick_is_the_first_token_whose_cumulative_probability_exceeds_the_draw(shares, draw):
    cumulative, expected = np.cumsum(np.array(shares, np.float64) / sum(shares)), 0
    if np.abs(cumulative - draw / 2**31).min() < 1e-5:
        return  # rounding may decide
    while cumulative[expected] < draw / 2**31:
        expected += 1
    assert sampled_tokens(torch.tensor([shares]).log(), torch.tensor([draw])).item() == expected


def test_draws_depend_on_seed_epoch_example_and_position_alone():
    positions = np.array([[3, 7], [7, 3]])
    draws = target_draws(np.array([5, 9]), positions, seed=1, epoch=2)
    alone = target_draws(np.array([9]), np.array([[3, 5, 7]]), seed=1, epoch=2)
    assert draws[1].tolist() == alone[0, [2, 0]].tolist()
    others = [(1, 3, 5), (2, 2, 5), (1, 2, 6)]
    assert all(target_draws(np.array([e]), positions[:1], seed=s, epoch=n)[0, 0] != draws[0, 0] for s, n, e in others)


@settings(max_examples=40)
@given(
    rows=st.lists(
        st.lists(st.tuples(st.floats(-4, 4, width=16), st.booleans()), min_size=1, max_size=6), min_size=1, max_size=4
    )
)
def test_the_loss_of_the_detector_is_that_of_a_loop_over_real_tokens(rows):
    width = max(len(tokens) for tokens in rows)
    logits, replaced, real = torch.full((len(rows), width), 9.0), *torch.zeros(2, len(rows), width, dtype=torch.bool)
    loss = correct = unreplaced = 0.0
    for row, tokens in enumerate(rows):
        for place, (logit, is_replaced) in enumerate(tokens):
            logits[row, place], replaced[row, place], real[row, place] = logit, is_replaced, True
            loss += math.log1p(math.exp(-logit if is_replaced else logit))
            correct += (logit > 0) == is_replaced
            unreplaced += not is_replaced
    found = replaced_token_sums(logits, replaced, real)
    assert [float(each) for each in found] == pytest.approx([loss, correct, unreplaced], rel=1e-5)


def test_the_detector_reads_the_text_with_the_picks_and_its_labels_are_what_differs(make):
    job = make()
    model = build_model(job, Tokenizer.load(job.tokenizer_folder), tiny.machine()).eval()
    batch, read = a_batch(job), []
    model.detect, detect = lambda ids, *rest: read.append(ids) or detect(ids, *rest), model.detect
    output = job.objective.output(model, batch)
    picks = sampled_tokens(model(**{n: batch[n] for n in ("input_ids", "token_type_ids", "attention_mask",
                                                          "masked_positions")}).mlm_logits, batch["draws"])  # fmt: skip
    for row, ids in enumerate(batch["input_ids"].tolist()):
        text, replaced = list(ids), list(ids)
        for position, label, pick in zip(
            *(each[row].tolist() for each in (batch["masked_positions"], batch["masked_labels"], picks)), strict=True
        ):
            if label != -100:
                text[position], replaced[position] = label, pick
        assert read[0][row].tolist() == replaced
        assert output.is_replaced[row].tolist() == [a != b for a, b in zip(text, replaced, strict=True)]
    assert 0 < output.is_replaced.sum() <= (batch["masked_labels"] != -100).sum()


def test_a_stopped_training_picks_on_as_if_it_had_not_stopped(make, monkeypatch):
    figures = assert_resumes_to_the_same_bits(make("alone"), make("stopped"), ValidationProbe, 10, monkeypatch)
    assert 0.5 < figures["val/unreplaced_share"] < 1 and figures["val/detection_loss"] > 0
    for part in ("model.safetensors", "generator/model.safetensors"):
        a, b = (read_weights((make(run).result_folder / part).parent, with_output=True) for run in ("alone", "stopped"))
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_two_ranks_train_generator_and_detector_as_one_does(make, sentences, tmp_path):
    alone = make("alone", model=STILL, pretrain__max_steps=20)
    run_pretraining(alone)
    two = json.loads(json.dumps({**changes(**STILL), "pretrain__max_steps": 20}))
    processes.finish(*processes.start_ranks(sentences, [tmp_path / "two"] * 2, two))
    for part in ("", "generator"):
        runs = (alone.result_folder, tmp_path / "two/result")
        expected, found = (read_weights(run / part, with_output=True) for run in runs)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_generator_and_detector_are_exported_as_the_classes_of_transformers(make, tmp_path):
    job = make(pretrain__max_steps=5)
    run_pretraining(job)
    build_export(EXPORT, pretrain_folder=job.result_folder, sweep_folders={}, pipeline_facts={}, out=tmp_path / "out")
    model = build_model(dataclasses.replace(job, start_from_folder=job.result_folder), Tokenizer.load(
        job.tokenizer_folder), tiny.machine()).eval()  # fmt: skip
    ids, types, mask = torch.randint(5, 50, (3, 9)), torch.zeros(3, 9, dtype=torch.long), torch.ones(3, 9).long()
    ours = {"": model.detect(ids, types, mask), "generator": model.forward_everywhere(ids, types, mask).mlm_logits}
    classes = {"": transformers.ElectraForPreTraining, "generator": transformers.ElectraForMaskedLM}
    for part, logits in ours.items():
        folder = tmp_path / "out/encoder" / part
        theirs, info = classes[part].from_pretrained(folder, output_loading_info=True)
        assert not any(info.values()), info
        assert theirs.config.architectures == [classes[part].__name__]
        torch.testing.assert_close(theirs.eval()(ids, mask, types).logits, logits, atol=1e-6, rtol=0)
        assert transformers.AutoTokenizer.from_pretrained(folder)("the cat sat")["input_ids"]
    embeddings = [read_weights(tmp_path / "out/encoder" / part, with_output=True) for part in ours]
    assert torch.equal(*(each["bert.embeddings.word_embeddings.weight"] for each in embeddings))


def test_what_cannot_be_trained_is_refused(make):
    with pytest.raises(ConfigError, match=r"hidden size 2: not a whole number of heads of size 4.*multiple of 0.25"):
        run_pretraining(make(objective={**OBJECTIVE, "generator_width": 0.125}))
    job = make(pretrain__max_steps=1)
    run_pretraining(job)
    (job.result_folder / "generator").rename(job.run_folder / "elsewhere")
    with pytest.raises(ArtifactError, match="has no generator/"):
        run_pretraining(dataclasses.replace(make("next"), start_from_folder=job.result_folder))
