"""The objective mlm_sop: its losses, whatever the rows and ranks; resumption; both heads in transformers' classes."""

import dataclasses
import math

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import pretraining_inputs
import tiny
from bertline.encoders.loading import load_model, save_model
from bertline.encoders.wrapped import model_section
from bertline.export.views import verify_model
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import read_json
from bertline.foundation.validation import validate
from bertline.modeling.bert import LanguageModelOutput
from bertline.modeling.config import ModelConfig
from bertline.pretraining.objectives import objective_from
from bertline.pretraining.plan import RowLayout
from bertline.pretraining.probes import ValidationProbe
from bertline.pretraining.run import run_pretraining
from bertline.tokenization.storage import copy_tokenizer

ALBERT = {
    "family": "albert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 32, "embedding_size": 12, "hidden_dropout_prob": 0.1,
}  # fmt: skip


@pytest.fixture(scope="module")
def ordered(tmp_path_factory):
    """Examples of which half are swapped."""
    folder = tmp_path_factory.mktemp("ordered")
    pretraining_inputs.write_inputs(folder, swapped_prob=0.5)
    return folder


@pytest.fixture(params=["bert", "albert"])
def make_sop(request, ordered, tmp_path):
    """A maker of jobs of a family with the objective mlm_sop."""

    def make(run: str = "run", **changes):
        if request.param == "albert":
            changes = {"runtime": tiny.runtime_section(packing="off"), **changes}
        changes = {"objective": pretraining_inputs.SOP, "pretrain__max_steps": 20, **changes}
        job = pretraining_inputs.pretrain_job(ordered, tmp_path / run, **changes)
        albert = validate(ModelConfig, model_section(ALBERT))
        return dataclasses.replace(job, model=albert) if request.param == "albert" else job

    return make


logits_and_label = st.tuples(st.floats(-8, 8, width=32), st.floats(-8, 8, width=32), st.sampled_from([0, 1, -100]))


@settings(max_examples=60, deadline=None)
@given(st.lists(logits_and_label, min_size=1, max_size=6))
def test_the_sums_are_those_of_a_plain_loop(rows):
    expected_loss = expected_correct = 0.0
    for first, second, label in rows:
        if label != -100:
            expected_loss += math.log(math.exp(first) + math.exp(second)) - (first, second)[label]
            expected_correct += (second > first) == (label == 1)
    order, labels = torch.tensor([row[:2] for row in rows]), torch.tensor([row[2] for row in rows])
    blanks = torch.zeros(len(rows), 1, 7)
    output = LanguageModelOutput(blanks, order, blanks)
    batch = {"masked_labels": torch.full((len(rows), 1), 3), "next_sentence_labels": labels}
    sums = objective_from(pretraining_inputs.SOP).sums(output, batch)
    assert float(sums["sop_loss"]) == pytest.approx(expected_loss, rel=1e-4, abs=1e-4)
    assert float(sums["sop_correct"]) == expected_correct
    assert float(sums["mlm_loss"]) == pytest.approx(len(rows) * math.log(7), rel=1e-5)


def test_neither_rows_nor_ranks_change_a_sum(make_sop):
    job = make_sop()
    layouts = [
        RowLayout(packed=packed, rows=1) for packed in ((False, True) if job.model.family == "bert" else (False,))
    ]
    pretraining_inputs.assert_neither_rows_nor_ranks_change_a_sum(job, *layouts)


def test_a_stopped_training_resumes_to_the_same_bits_and_both_heads_are_exported(make_sop, tmp_path, monkeypatch):
    jobs = [make_sop(name) for name in ("alone", "stopped")]
    figures = pretraining_inputs.assert_resumes_to_the_same_bits(*jobs, ValidationProbe, 10, monkeypatch)
    assert {"val/mlm_loss", "val/sop_loss", "val/sop_accuracy"} <= figures.keys()
    folder = tmp_path / "exported"
    save_model(load_model(jobs[0].result_folder, "mlm"), folder)
    copy_tokenizer(jobs[0].result_folder, folder, max_length=32)
    (architecture,) = read_json(folder / "config.json")["architectures"]
    assert architecture == {"bert": "BertForPreTraining", "albert": "AlbertForPreTraining"}[jobs[0].model.family]
    _, info = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert verify_model(folder, labels=None, tolerance=1e-5) < 1e-5  # of both heads


def test_pairs_with_other_labels_are_refused(make_job, make_sop):
    with pytest.raises(
        ConfigError, match=r"swapped_prob is null.*mlm_sop.*swapped segments. Use examples=sentence_ord"
    ):
        run_pretraining(make_job(objective=pretraining_inputs.SOP))
    for kind in ({"kind": "mlm_nsp", "nsp_weight": 1.0}, pretraining_inputs.SHARED):
        with pytest.raises(
            ConfigError, match=r"swapped_prob is 0.5, but .* a random second segment. Use examples=sent"
        ):
            run_pretraining(make_sop(objective=kind))
