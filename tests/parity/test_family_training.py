"""Training of every family: the losses of transformers' own class on the same batches, and exact resumption."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import transformers
from torch.nn.utils import clip_grad_norm_

import finetuning_inputs
import tiny
from bertline.encoders.loading import load_model, save_model
from bertline.encoders.wrapped import model_section
from bertline.finetuning import embedding_rows
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.job import FineTuningJob, TaskSplit
from bertline.finetuning.parameter_groups import freeze, parameter_groups
from bertline.foundation.seeds import seed_for
from bertline.foundation.validation import validate
from bertline.kinds.base import HeadSettings
from bertline.kinds.registry import task_kind
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.config import ModelConfig
from bertline.modeling.families import FAMILIES
from bertline.pretraining.data import expanded
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.probes import ValidationProbe
from bertline.pretraining.run import run_pretraining
from bertline.pretraining.start import build_model, start_at_unigrams
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.groupwise import set_learning_rate
from bertline.training.optimizers.base import groups_by_decay
from pretraining_inputs import assert_resumes_to_the_same_bits, pretrain_job, write_inputs

_SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 32,
}  # fmt: skip
SECTIONS: dict[str, dict[str, Any]] = {
    "roberta": {**_SIZES, "max_position_embeddings": 34, "type_vocab_size": 1},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 32},
    "electra": {**_SIZES, "embedding_size": 12},
    "albert": {**_SIZES, "embedding_size": 12},
    "mpnet": {**_SIZES, "max_position_embeddings": 34},
    "deberta-v2": {**_SIZES, "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"]},
    "modernbert": {**_SIZES, "local_attention": 8, "global_attn_every_n_layers": 2},
}
WRAPPED = [family for family in SECTIONS if FAMILIES[family].wrapping is not None]
LENGTH = 16


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder, num_segments=1)
    return folder


def job_of(family: str, inputs: Path, run_folder: Path, *, dropout: float) -> PretrainJob:
    """A pretraining of a family from scratch."""
    section = {"family": family, **SECTIONS[family]}
    runtime = tiny.runtime_section(packing="off")
    mlm = {"kind": "mlm"}
    job = pretrain_job(inputs, run_folder, objective=mlm, runtime=runtime, pretrain__max_steps=20, optimizer__lr=2e-2)
    names = dict.fromkeys(dropout_names(family), dropout)
    return dataclasses.replace(job, model=validate(ModelConfig, model_section({**section, **names})))


def dropout_names(family: str) -> list[str]:
    known = transformers.AutoConfig.for_model(family).to_dict()
    wanted = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "mlp_dropout")
    return [name for name in wanted if name in known]


class Batches(pl.Callback):
    """The micro-batches of each step, and the loss that the model had on them before it."""

    def __init__(self) -> None:
        self.seen: list[list[dict[str, torch.Tensor]]] = []
        self.rates: list[float] = []
        self.losses: list[float] = []

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        whole = [expanded(each) for each in batch["micro_batches"]]
        self.seen.append(whole)
        self.rates.append(module.learning_rate(module.finished_steps))
        with torch.no_grad():
            sums = [module.losses(each)["mlm_loss"] for each in whole]
        self.losses.append(float(sum(sums) / batch["num_targets"]))


def plain_training(
    reference: Any, arguments: list[dict[str, torch.Tensor]], rates: list[float], config: Any, *, beta2: float
) -> list[float]:
    """Train a model of transformers with PyTorch's AdamW; return the loss of each step."""
    optimizer = torch.optim.AdamW(groups_by_decay(reference, config.weight_decay), betas=(0.9, beta2), eps=1e-6)
    losses = []
    for each, rate in zip(arguments, rates, strict=True):
        set_learning_rate(optimizer, rate)
        optimizer.zero_grad()
        loss = reference(**each).loss
        loss.backward()
        clip_grad_norm_(reference.parameters(), config.max_grad_norm)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("family", SECTIONS)
def test_twenty_steps_of_mlm_have_the_losses_of_transformers(family: str, inputs: Path, tmp_path: Path) -> None:
    job = job_of(family, inputs, tmp_path / "run", dropout=0.0)
    start = build_model(job, Tokenizer.load(job.tokenizer_folder), tiny.machine())
    save_model(start, tmp_path / "start")
    batches = Batches()
    run_pretraining(job, callbacks=[batches])

    reference = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "start").train()
    drawn = {name: weight.detach().clone() for name, weight in reference.named_parameters()}
    arguments = []
    for (batch,) in batches.seen:
        labels = torch.full_like(batch["input_ids"], -100)
        labels.scatter_(1, batch["masked_positions"], batch["masked_labels"])
        inputs_read = {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}
        arguments.append({**inputs_read, "labels": labels})
    losses = plain_training(reference, arguments, batches.rates, job.optimizer, beta2=0.98)
    assert len(losses) == 20
    assert batches.losses == pytest.approx(losses, abs=1e-4)
    written, info = type(reference).from_pretrained(job.result_folder, output_loading_info=True)
    assert not any(info.values()), info
    for (name, found), expected in zip(written.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0, msg=name)
        assert found.ndim < 2 or (found - drawn[name]).abs().max() > 0.002, name


@pytest.mark.parametrize("family", SECTIONS)
def test_a_stopped_and_resumed_training_with_dropout_has_the_same_bits(family, inputs, tmp_path, monkeypatch) -> None:
    jobs = [job_of(family, inputs, tmp_path / name, dropout=0.2) for name in ("alone", "stopped")]
    assert_resumes_to_the_same_bits(*jobs, ValidationProbe, 10, monkeypatch)
    without = job_of(family, inputs, tmp_path / "without", dropout=0.0)
    run_pretraining(without)
    ours, other = (load_model(job.result_folder, "mlm").state_dict() for job in (jobs[0], without))
    assert not all(torch.equal(ours[name], other[name]) for name in ours)


@pytest.mark.parametrize("family", SECTIONS)
def test_an_encoder_without_a_head_starts_at_the_frequencies_and_learns(family, inputs, tmp_path) -> None:
    job = job_of(family, inputs, tmp_path / "run", dropout=0.0)
    tokenizer = Tokenizer.load(job.tokenizer_folder)
    save_model(build_model(job, tokenizer, tiny.machine()), tmp_path / "whole")
    transformers.AutoModel.from_pretrained(tmp_path / "whole").save_pretrained(tmp_path / "encoder")
    for path in job.tokenizer_folder.iterdir():
        (tmp_path / "encoder" / path.name).write_bytes(path.read_bytes())
    start = tmp_path / "encoder"
    job = dataclasses.replace(job, model=Checkpoint.open(start).config, start_from_folder=start)
    model: Any = build_model(job, tokenizer, tiny.machine())
    theirs: Any = transformers.AutoModel.from_pretrained(start)
    assert torch.equal(model.bert.word_embeddings, theirs.get_input_embeddings().weight)
    counts = torch.arange(tokenizer.vocab_size)
    start_at_unigrams(model, counts, (0, 1, 2, 3, 4), seed=0)
    smoothed = (counts + 1.0).index_fill(0, torch.arange(5), 1.0)
    ids = torch.randint(5, 50, (2, 9))
    found = model.eval().forward_everywhere(ids, torch.zeros_like(ids)).mlm_logits
    expected = (smoothed / smoothed.sum()).expand_as(found)
    torch.testing.assert_close(found.softmax(-1), expected, atol=1e-5, rtol=1e-3)
    run_pretraining(job)
    _, info = transformers.AutoModelForMaskedLM.from_pretrained(job.result_folder, output_loading_info=True)
    assert not any(info.values()), info
    before, after = (transformers.AutoModel.from_pretrained(each).state_dict() for each in (start, job.result_folder))
    layers = [name for name in before if "layer" in name and name.endswith("weight") and before[name].ndim == 2]
    assert layers and not any(torch.equal(after[name], before[name]) for name in layers)


def folder_of(family: str, folder: Path, kind: Any = transformers.AutoModel) -> Path:
    """A folder of a wrapped family with a vocabulary of whole words."""
    tiny.write_vocabulary(folder, tiny.WORDS)
    sizes = {**SECTIONS[family], "vocab_size": Tokenizer.load(folder).vocab_size, "initializer_range": 0.2}
    ids = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(family, **sizes, **ids)
    kind.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("least_share", [0.5, 0.0])
@pytest.mark.parametrize("family", WRAPPED)
def test_twenty_steps_of_fine_tuning_have_the_losses_of_transformers(
    family: str, least_share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_rows, "_LEAST_WEIGHTS", 0)
    monkeypatch.setattr(embedding_rows, "_LEAST_SHARE", least_share)
    folder = folder_of(family, tmp_path / "encoder")
    kind = task_kind(finetuning_inputs.task(), finetuning_inputs.LABELS)
    tokenizer = Tokenizer.load(folder)
    splits = []
    for seed, number in enumerate((80, 32)):
        rows = finetuning_inputs.learnable_rows(number, seed=seed)
        splits.append(TaskSplit(rows=rows, encoded=kind.encode(rows, tokenizer)))
    config = finetuning_inputs.fine_tuning(dropout_prob=0.0, num_epochs=4, warmup_fraction=0.0, weight_decay=0.5)
    head = HeadSettings(dropout_prob=0.0, seed=seed_for(5, "classifier"), attention="plain")
    start = kind.new_model(folder, head)
    kind.save_model(start, tmp_path / "start")

    seen: list[dict[str, torch.Tensor]] = []
    losses: list[float] = []
    compute = kind.loss

    def recorded(model: Any, batch: Any, options: Any) -> torch.Tensor:
        loss = compute(model, batch, options)
        seen.append(batch)
        losses.append(loss.item())
        return loss

    kind.loss = recorded  # type: ignore[method-assign]
    train, dev = splits
    result = fine_tune(
        FineTuningJob(
            kind=kind, config=config, encoder="pretrained", encoder_folder=folder, train=train, dev=dev, seed=5,
            machine=tiny.machine(), runtime=tiny.runtime(),
        )
    )  # fmt: skip

    reference = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "start").train()
    arguments = [{name: batch[name] for name in ("input_ids", "attention_mask", "labels")} for batch in seen]
    rates = [config.learning_rate * (1 - step / len(seen)) for step in range(len(seen))]
    expected = plain_training(reference, arguments, rates, config, beta2=0.999)
    assert len(expected) == 20 and expected[-1] < expected[0]
    assert losses == pytest.approx(expected, abs=1e-4)
    assert result.dev.scores["accuracy"] > 0.6
    model: Any = result.model
    tables = model.bert.word_embeddings, reference.get_input_embeddings().weight
    torch.testing.assert_close(*tables, atol=1e-3, rtol=0)


@pytest.mark.parametrize("family", WRAPPED)
def test_layers_are_frozen_and_decayed_from_the_top(family: str, tmp_path: Path) -> None:
    folder = folder_of(family, tmp_path / "encoder")
    model: Any = load_model(folder, "sequence", num_outputs=2, is_new=True, seed=1)
    num_layers = len(model.bert.layers)
    assert num_layers == (1 if family == "albert" else 2)  # ALBERT's layers share their weights
    groups = parameter_groups(model, weight_decay=0.0, layer_decay=0.5)
    factor = {id(weight): group["rate_factor"] for group in groups for weight in group["params"]}
    assert len(factor) == len(list(model.parameters()))
    assert factor[id(model.bert.word_embeddings)] == 0.5**num_layers
    assert {factor[id(weight)] for weight in model.bert.layers[-1].parameters()} == {1.0}
    assert {factor[id(weight)] for _, part in model.head for weight in part.parameters()} == {1.0}
    freeze(model.bert.train(), 1)
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert not any("embeddings" in name for name in trained)
    assert all(weight.requires_grad for weight in model.bert.layers[-1].parameters())
    assert num_layers == 1 or not any(weight.requires_grad for weight in model.bert.layers[0].parameters())


def test_modernbert_s_head_of_pretraining_begins_that_of_a_classifier(tmp_path: Path) -> None:
    folder = folder_of("modernbert", tmp_path / "encoder", transformers.AutoModelForMaskedLM)
    pretrained = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    models: list[Any] = [load_model(folder, "tokens", num_outputs=2, is_new=True, seed=seed) for seed in (1, 2)]
    for model in models:
        assert torch.equal(model.hf.head.dense.weight, pretrained.head.dense.weight)
    assert not torch.equal(models[0].hf.classifier.weight, models[1].hf.classifier.weight)
    save_model(models[0], folder)
    again: Any = load_model(folder, "sequence", num_outputs=2, is_new=True, seed=1)  # another task's head does not stay
    assert not torch.equal(again.hf.head.dense.weight, pretrained.head.dense.weight)
