"""What every objective must say of itself."""

import dataclasses
import re

import pytest
import torch

import tiny
from bertline.foundation.errors import ArtifactError
from bertline.foundation.files import read_json, read_json_lines
from bertline.modeling.bert import BertForMaskedLM
from bertline.modeling.checkpoint import Checkpoint
from bertline.pretraining.config import HealthConfig, PhaseConfig
from bertline.pretraining.health import HealthMonitor
from bertline.pretraining.objectives import objective_from
from bertline.pretraining.objectives.base import means, means_of, shown_means, sum_names, weighted_loss
from bertline.pretraining.plan import Plan, RowLayout
from bertline.pretraining.run import run_pretraining
from bertline.training.checkpoints import CheckpointFolder
from pretraining_inputs import CONTRASTIVE, HEALTH, SHARED, SOP, assert_neither_rows_nor_ranks_change_a_sum
from tiny import load_masked_lm, load_pretraining_model

OF_PAIRS_AND_TEXTS = [{"kind": "mlm"}, {"kind": "mlm_nsp", "nsp_weight": 0.5}, {**SHARED, "shared_weight": 0.25}, SOP]
OBJECTIVES = {each["kind"]: objective_from(each) for each in (*OF_PAIRS_AND_TEXTS, CONTRASTIVE)}
SEVEN = {
    **OBJECTIVES,
    "replaced_token": objective_from({"kind": "replaced_token", "generator_width": 0.25, "detection_weight": 50.0}),
    "distilled": objective_from(
        {"kind": "distilled", "teacher": "folder", "temperature": 2.0, "soft_weight": 5.0, "mlm_weight": 2.0,
         "cosine_weight": 1.0, "start_from_teacher": True}
    ),
}  # fmt: skip
KNOWN = {"unigram_entropy": 6.0, "random_next_prob": 0.5, "swapped_prob": 0.5}
EACH = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)


def batch() -> dict[str, torch.Tensor]:
    ids = torch.arange(6).reshape(2, 3)
    return {
        "input_ids": ids,
        "token_type_ids": torch.zeros_like(ids),
        "attention_mask": torch.ones_like(ids),
        "masked_positions": torch.tensor([[1, 0], [1, 2]]),
        "masked_labels": torch.tensor([[1, -100], [2, 3]]),
        "next_sentence_labels": torch.tensor([0, 1]),
    }


@EACH
def test_the_sums_have_the_names_that_are_announced(objective):
    config = tiny.model_config()
    model = objective.model_class()(config, vocab_size=20, pad_token_id=0, attention="plain")
    sums = objective.sums(objective.output(model, batch()), batch())
    assert sorted(sums) == sorted(sum_names(objective))
    assert all(value.shape == () and value.dtype == torch.float32 for value in sums.values())


@pytest.mark.parametrize("maker", ["make_mlm", "make_job", "make_shared", "make_contrastive"])
def test_neither_rows_nor_ranks_change_a_sum(request, maker):
    layouts = [RowLayout(packed=packed, rows=rows) for packed, rows in ((False, 1), (True, None), (True, 1))]
    assert_neither_rows_nor_ranks_change_a_sum(request.getfixturevalue(maker)(), *layouts)


@EACH
def test_the_loss_is_the_weighted_sum_of_its_terms(objective):
    total = {
        "mlm_loss": 6.0, "nsp_loss": 8.0, "contrastive_loss": 12.0, "mlm_correct": 1.0, "nsp_correct": 2.0,
        "sop_loss": 8.0, "sop_correct": 2.0,
        "contrastive_correct": 2.0, "shared_loss": 1.0, "shared_correct": 2.0, "unshared": 2.0,
        "targets": 3.0, "sequences": 4.0,
    }  # fmt: skip
    pairs = 2.0 + 0.5 * 2.0
    expected = {"mlm": 2.0, "mlm_nsp_shared": pairs + 0.25 * 0.25, "contrastive": 3.0 + 0.5 * 2.0}
    assert weighted_loss(objective, means(objective, total)) == expected.get(objective.kind, pairs)


@EACH
def test_all_that_is_shown_is_measured_and_plain_data_gives_the_objective_again(objective):
    assert objective_from(dataclasses.asdict(objective)) == objective
    names = {mean.name for mean in (*objective.terms, *objective.metrics)}
    baselines, shown = objective.baselines(KNOWN), {mean.name: mean for mean in shown_means(objective)}
    assert objective.judged_by in {term.name for term in objective.terms}
    assert shown.keys() <= names
    assert {name for name, mean in shown.items() if mean.baseline} == baselines.keys()
    for placeholder in re.findall(r"{(\w+)}", objective.summary):
        name, _, of_baseline = re.match(r"(.*?)(_(baseline|margin))?$", placeholder).groups()
        assert name in shown
        assert name in baselines or not of_baseline


@pytest.mark.parametrize("objective", SEVEN.values(), ids=SEVEN)
def test_every_alarm_is_raised_at_the_baselines_alone_and_has_advice(objective):
    """By the monitor of a run, on rows of all means of the objective."""
    baselines = objective.baselines(KNOWN)
    at_baseline = {mean.name: baselines.get(mean.name, 0.9) for mean in means_of(objective)}
    learned = {name: 0.95 if name.endswith("accuracy") else 0.1 for name in at_baseline}
    for averages, expected in ((at_baseline, objective.advice.keys()), (learned, set())):
        examples = {**KNOWN, "lengths": {"16": {}}}
        plan = Plan([PhaseConfig(steps=100, max_length=16, global_batch_size=8)], num_steps=100)
        monitor = HealthMonitor(HealthConfig(**{**HEALTH, "patience_steps": 10}), 0, objective, plan, examples)
        others = {"train/loss": 1.0, "optim/grad_norm": 1.0, "optim/skipped_steps": 0, "perf/data_wait_fraction": 0.0}
        rows = {**others, **{f"train/{name}": average for name, average in averages.items()}}
        assert {alarm.kind for step in (5, 10) for alarm in monitor.take(step, rows)} == set(expected)


def test_mlm_has_no_next_sentence_head_and_no_pooler_anywhere(make_mlm):
    job = make_mlm()
    figures = run_pretraining(job)
    assert {key for key in figures if key.startswith("val/")} == {"val/mlm_loss", "val/mlm_accuracy"}
    assert figures["train/loss"] > 0 and figures["unigram_entropy"] == 4.0
    state = CheckpointFolder(job.checkpoints_folder, keep=1).load_newest().state
    assert not [name for name in state["model"] if "nsp" in name or "pooler" in name]
    assert len(state["optimizer"]["state"]) == len(state["model"])
    assert read_json(job.result_folder / "config.json")["architectures"] == ["BertForMaskedLM"]
    assert Checkpoint.open(job.result_folder).architecture == "BertForMaskedLM"
    model = load_masked_lm(job.result_folder)
    assert figures["num_parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert all(torch.equal(tensor, state["model"][name]) for name, tensor in model.state_dict().items())
    assert read_json_lines(job.mask_predictions_path)


def test_each_objective_starts_from_the_model_of_the_other(make_mlm, make_job, capsys):
    pairs, sentences = make_job("pairs", pretrain__max_steps=5), make_mlm("sentences", pretrain__max_steps=5)
    run_pretraining(pairs)
    run_pretraining(sentences)
    capsys.readouterr()
    from_pairs = dataclasses.replace(make_mlm("a", pretrain__max_steps=1), start_from_folder=pairs.result_folder)
    run_pretraining(from_pairs)
    assert "lacks" not in capsys.readouterr().err
    assert isinstance(load_masked_lm(from_pairs.result_folder), BertForMaskedLM)
    from_one = dataclasses.replace(make_job("b", pretrain__max_steps=1), start_from_folder=sentences.result_folder)
    run_pretraining(from_one)
    assert re.search(r"lacks bert.pooler.*cls.seq_relationship", capsys.readouterr().err)
    load_pretraining_model(from_one.result_folder)


def test_examples_of_another_objective_are_refused(make_mlm, make_job):
    with pytest.raises(ArtifactError, match=r"1 segment\(s\), objective.kind=mlm_nsp.*examples=sentence_pairs"):
        run_pretraining(make_mlm(objective={"kind": "mlm_nsp", "nsp_weight": 1.0}))
    with pytest.raises(ArtifactError, match=r"2 segment\(s\), objective.kind=mlm.*examples=full_sentences"):
        run_pretraining(make_job(objective={"kind": "mlm"}))
