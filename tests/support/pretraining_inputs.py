"""Small made-up inputs for pretraining tests, and the job that trains on them. Loaded by path from conftest files."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tiny
from bertline.examples.store import split_folder
from bertline.foundation.files import read_json_lines
from bertline.foundation.manifests import write_manifest
from bertline.foundation.metrics_log import read_metrics
from bertline.foundation.validation import validate
from bertline.modeling.config import ModelConfig
from bertline.modeling.weight_files import read_weights
from bertline.pretraining.config import PretrainConfig
from bertline.pretraining.data import MaskedExamples, StepDataset, expanded
from bertline.pretraining.job import PretrainJob
from bertline.pretraining.module import PreTrainingLosses
from bertline.pretraining.objectives import ObjectiveConfig
from bertline.pretraining.plan import Plan, RowLayout
from bertline.pretraining.probes import MaskPredictionProbe
from bertline.pretraining.run import run_pretraining
from bertline.pretraining.start import build_model
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bertline.training.checkpoints import CheckpointFolder
from bertline.training.config import RuntimeConfig, ScheduleConfig
from bertline.training.devices import Ranks
from bertline.training.interruption import TrainingInterrupted
from bertline.training.optimizers import OptimizerConfig
from example_shards import write_shards
from tiny import load_pretraining_model

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENS = (*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "the", "cat", "sat")
CONTRASTIVE = {
    "kind": "contrastive", "group_size": 4, "neighbours": 1, "temperature": 0.05, "pooling": "mean", "mlm_weight": 0.5
}  # fmt: skip
NO_DROPOUT = {"model__hidden_dropout_prob": 0.0, "model__attention_probs_dropout_prob": 0.0}
ADAM = {"lr": 5e-3, "beta1": 0.9, "beta2": 0.98, "eps": 1e-6, "weight_decay": 0.01, "max_grad_norm": 1.0}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {**ADAM, "kind": "adamw"},
    "muon": {**ADAM, "kind": "muon", "momentum": 0.95, "adamw_lr": 1e-2},
}
HEALTH: dict[str, Any] = tiny.defaults("pretrain/default")["health"]
SOP = {"kind": "mlm_sop", "sop_weight": 0.5}
SHARED = {"kind": "mlm_nsp_shared", "nsp_weight": 0.5, "shared_weight": 0.2}


def write_inputs(
    folder: Path,
    *,
    lengths: tuple[int, ...] = (16,),
    full_lengths: tuple[int, ...] = (),
    num_train: int = 50,
    num_validation: int = 12,
    num_segments: int = 2,
    of_one_document: bool = False,
    swapped_prob: float | None = None,
) -> None:
    """Write `tokenizer/` and `examples/`: sequences in which each token follows from the last.

    Those of `full_lengths` have all that length, the others different ones. `of_one_document`: the manifest says that
    no second segment is a random one; `swapped_prob`: that so many have changed places.
    """
    save_tokenizer(Tokenizer(Vocabulary(tokens=TOKENS, lowercase=True)), folder / "tokenizer")
    counts = {"train": num_train, "validation": num_validation}
    manifest = examples_manifest(len(TOKENS), shard_sequences=32)
    if num_segments == 1:
        manifest["random_next_prob"] = None
    if of_one_document or swapped_prob:
        manifest.update(random_next_prob=0.0, swapped_prob=swapped_prob)
    for length in lengths:
        manifest["lengths"][str(length)] = {"unigram_entropy": 4.0}
        for split, count in counts.items():
            shortest = length if length in full_lengths else length // 2
            place = split_folder(folder / "examples", split, length)
            tokens = _write_examples(place, count, length, shortest, num_segments=num_segments)
            manifest["lengths"][str(length)][split] = {"examples": count, "tokens": tokens}
    write_manifest(folder / "examples", kind="examples", format_version=1, content=manifest)


def examples_manifest(vocab_size: int, *, shard_sequences: int) -> dict[str, Any]:
    """What an examples artifact says of itself, without its lengths."""
    return {
        "seed": 7, "random_next_prob": 0.5, "vocab_size": vocab_size, "shard_sequences": shard_sequences, "lengths": {},
        "special_ids": {token: index for index, token in enumerate(SPECIAL_TOKENS)},
        "masking": {
            "kind": "dynamic", "mask_prob": 0.15, "replace_with_mask_prob": 0.8, "replace_with_random_prob": 0.1
        },
    }  # fmt: skip


def pretrain_job(folder: Path, run_folder: Path, **changes: Any) -> PretrainJob:
    """A job on `write_inputs`' folders that takes about a second. `changes` are `section__key=value` or `section=`."""
    sections = _sections()
    for key, value in changes.items():
        section, _, name = key.partition("__")
        sections[section] = {**sections[section], name: value} if name else value
    return PretrainJob(
        model=validate(ModelConfig, sections["model"]),
        objective=validate(ObjectiveConfig, sections["objective"]),
        optimizer=validate(OptimizerConfig, sections["optimizer"]),
        schedule=validate(ScheduleConfig, sections["schedule"]),
        pretrain=validate(PretrainConfig, sections["pretrain"]),
        runtime=validate(RuntimeConfig, sections["runtime"]),
        examples_folder=folder / "examples",
        tokenizer_folder=folder / "tokenizer",
        run_folder=run_folder,
    )


def newest_state(job: PretrainJob) -> dict[str, Any]:
    """The state in the newest checkpoint of a run."""
    checkpoint = CheckpointFolder(job.checkpoints_folder, keep=1).load_newest()
    assert checkpoint is not None
    return checkpoint.state


def weights(job: PretrainJob) -> dict[str, torch.Tensor]:
    """The model's weights in the newest checkpoint of a run."""
    return newest_state(job)["model"]


def assert_same_weights(left: Any, right: Any, where: str = "") -> None:
    """Require the same names, and tensors that are equal to the last bit, also in nested states."""
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same_weights(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list):
        assert len(left) == len(right), where
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_same_weights(one, other, f"{where}/{index}")
    else:
        assert left == right, where


def again(make_job: Any, job: PretrainJob, **changes: Any) -> PretrainJob:
    """A job with changes on the run folder of another one."""
    return replace(make_job(**changes), run_folder=job.run_folder)


def stop_after(
    job: PretrainJob, step: int, monkeypatch: pytest.MonkeyPatch, *, probe: Any = MaskPredictionProbe, number: int = 15
) -> None:
    """Start a run and make this probe send the process a signal after a step (15: TERM), at which it saves and ends."""
    original = probe.probe

    def signalled(self: Any, now: int) -> Any:
        if now == step:
            os.kill(os.getpid(), number)
        return original(self, now)

    message = f"saved after step {step} of {job.pretrain.num_steps}"
    with monkeypatch.context() as patched, pytest.raises(TrainingInterrupted, match=message):
        patched.setattr(probe, "probe", signalled)
        run_pretraining(job)


def curve(job: PretrainJob) -> list[tuple[int, dict[str, float]]]:
    """What a run logged, without speed and memory, which no two runs have alike."""
    return [
        (row.step, {key: value for key, value in row.metrics.items() if not key.startswith("perf/")})
        for row in read_metrics(job.metrics_path)
    ]


def assert_resumes_to_the_same_bits(
    alone: PretrainJob, stopped: PretrainJob, probe: Any, step: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    """Run one job at once, and its equal with a SIGTERM at a step of a probe and a resume; return the figures.

    Weights and logged curves must be the same to the last bit.
    """
    figures = run_pretraining(alone)
    stop_after(stopped, step, monkeypatch, probe=probe)
    run_pretraining(stopped)
    assert_same_weights(*(read_weights(job.result_folder, with_output=True) for job in (alone, stopped)))
    assert curve(alone) == curve(stopped)
    return figures


def steps_of(job: PretrainJob, layout: RowLayout, ranks: Ranks | None = None) -> StepDataset:
    """The steps of a job on this rank, with rows of all lengths in this layout."""
    plan = Plan.of(job.pretrain)
    examples = MaskedExamples.by_length(job.examples_folder, "train", plan.lengths, job.objective)
    return StepDataset(plan, examples, dict.fromkeys(examples, layout), ranks=ranks or Ranks(), seed=job.pretrain.seed)


def losses_of(job: PretrainJob) -> PreTrainingLosses:
    """The losses of the model that a job starts from, in evaluation mode."""
    model = build_model(job, Tokenizer.load(job.tokenizer_folder), tiny.machine())
    return PreTrainingLosses(model.eval(), job.objective)


def gradients_of_the_whole_batch(job: PretrainJob) -> dict[str, torch.Tensor]:
    """The gradients of a first step whose loss is one mean over all targets and one over all sequences."""
    losses = losses_of(job).train()
    (sent,) = steps_of(job, RowLayout(packed=False, rows=None))[0]["micro_batches"]
    batch = expanded(sent)
    labels, next_sentence_labels = batch.pop("masked_labels"), batch.pop("next_sentence_labels")
    output = losses.model(**batch)
    mlm = F.cross_entropy(output.mlm_logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
    nsp = F.cross_entropy(output.nsp_logits, next_sentence_labels)
    (mlm + job.objective.nsp_weight * nsp).backward()
    return {name: parameter.grad for name, parameter in losses.model.named_parameters()}


def assert_neither_rows_nor_ranks_change_a_sum(job: PretrainJob, *layouts: RowLayout) -> None:
    """Require the sums of a step of padded rows from micro-batches in other layouts, on one rank and on two."""
    losses = losses_of(job).requires_grad_(False)

    def sums(layout: RowLayout, ranks: Ranks) -> dict[str, torch.Tensor]:
        parts = [losses(expanded(each)) for each in steps_of(job, layout, ranks)[1]["micro_batches"]]
        return {name: sum(part[name] for part in parts) for name in parts[0]}

    expected = sums(RowLayout(packed=False, rows=None), Ranks())
    for layout in layouts:
        alone = sums(layout, Ranks())
        shares = [sums(layout, Ranks(rank=rank, world_size=2, local_rank=rank)) for rank in (0, 1)]
        together = {name: shares[0][name] + shares[1][name] for name in expected}
        for found in (alone, together):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def _write_examples(folder: Path, count: int, length: int, shortest: int, *, num_segments: int) -> int:
    generator = np.random.default_rng(count + length)
    rows, firsts = [], []
    for size in generator.integers(shortest, length + 1, size=count):
        body = (generator.integers(0, 50) + np.arange(size - 3) * 3) % (len(TOKENS) - 5) + 5
        cut = int(generator.integers(1, size - 3))
        rows.append([2, *body[:cut], 3, *body[cut:], 3] if num_segments == 2 else [2, *body, body[-1], 3])
        firsts.append(cut + 2 if num_segments == 2 else size)
    return write_shards(folder, rows, firsts, generator.integers(0, 2, size=count), 32)


def _sections() -> dict[str, dict[str, Any]]:
    return {
        "model": asdict(
            tiny.model_config(hidden_size=16, num_attention_heads=2, intermediate_size=32, max_position_embeddings=32)
        ),
        "objective": {"kind": "mlm_nsp", "nsp_weight": 1.0},
        "optimizer": OPTIMIZERS["adamw"],
        "schedule": {"kind": "linear", "num_warmup_steps": 5},
        "pretrain": tiny.defaults(
            "pretrain/default",
            phases=[{"steps": 30, "max_length": 16, "global_batch_size": 8}],
            precision="fp32",
            validate_every_steps=10,
            validation_sequences=100,
            checkpoint_every_steps=8,
            mask_predictions={"every_steps": 15, "num_guesses": 3, "sentences": ["the [MASK] sat."]},
        ),
        "runtime": tiny.runtime_section(),
    }  # fmt: skip


if __name__ == "__main__":
    # `python pretraining_inputs.py INPUTS RUN_FOLDER CHANGES`: a real process to kill, or a rank of several.
    run_pretraining(pretrain_job(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3])))


def newest_checkpoint(job: PretrainJob) -> int:
    """Step of the newest checkpoint; -1 before there is one."""
    return max(CheckpointFolder(job.checkpoints_folder, keep=1).steps, default=-1)


def assert_ended_as(alone: PretrainJob, job: PretrainJob) -> None:
    """The same weights, optimizer, place, curve, mask predictions, and nothing left lying about."""
    expected, found = newest_state(alone), newest_state(job)
    for name in ("step", "model", "optimizer", "place", "interval", "num_tokens"):
        torch.testing.assert_close(expected[name], found[name], rtol=0, atol=0, msg=name)
    assert curve(job) == curve(alone)
    assert read_json_lines(job.mask_predictions_path) == read_json_lines(alone.mask_predictions_path)
    results = [load_pretraining_model(folder).state_dict() for folder in (alone.result_folder, job.result_folder)]
    torch.testing.assert_close(*results, rtol=0, atol=0)
    assert _names_in(job.run_folder) == _names_in(alone.run_folder)


def _names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
