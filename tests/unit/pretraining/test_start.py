"""Starting from a checkpoint: one without a masked language model head begins at the unigram distribution."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertline.encoders.loading import save_model
from bertline.examples.build import target_counts, unigram_entropy
from bertline.examples.masking import masking_policy
from bertline.examples.store import ExampleStore, token_counts
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import read_json, write_json
from bertline.foundation.manifests import MANIFEST_NAME
from bertline.foundation.metrics_log import read_metrics
from bertline.modeling.checkpoint import Checkpoint
from bertline.modeling.huggingface import require_whole_checkpoint
from bertline.pretraining.run import run_pretraining
from bertline.pretraining.start import build_model, misfits, refuse_misfits
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import resolve_machine


@pytest.fixture(scope="module")
def pretrained(pretraining, inputs, tmp_path_factory):
    """Folder of a model that was trained for some steps, with both heads."""
    job = pretraining.pretrain_job(inputs, tmp_path_factory.mktemp("pretrained") / "run", pretrain__max_steps=12)
    run_pretraining(job)
    return job.result_folder


@pytest.fixture
def encoder(pretrained, tmp_path):
    """The same folder without the weights of the heads, as encoders are published."""
    folder = tmp_path / "encoder"
    folder.mkdir()
    for path in pretrained.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    weights = load_file(pretrained / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("cls.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def entropy_of(job, length):
    train, held_out = (ExampleStore.open(job.examples_folder, split, length) for split in ("train", "validation"))
    policy = masking_policy(train.manifest)
    targets = target_counts(held_out, seed=held_out.manifest["seed"], policy=policy)
    return unigram_entropy(token_counts(train, len(targets)), targets, special_ids=range(5))


def test_an_encoder_without_a_head_starts_no_worse_than_the_unigram_distribution(pretraining, encoder, tmp_path, capfd):
    # Enough targets that the two sets of masks have nearly the same mean.
    pretraining.write_inputs(tmp_path, num_train=400, num_validation=300)
    job = pretraining.pretrain_job(
        tmp_path, tmp_path / "run", pretrain__max_steps=8, pretrain__validation_sequences=300
    )
    job = dataclasses.replace(job, start_from_folder=encoder)
    assert not Checkpoint.open(encoder).has_mlm_head
    run_pretraining(job)
    losses = [row.metrics["val/mlm_loss"] for row in read_metrics(job.metrics_path) if row.step == 0]
    assert losses[0] <= entropy_of(job, job.pretrain.phases[0].max_length) + 0.05
    said = capfd.readouterr()
    assert "cls.predictions" not in said.err + said.out  # what starts neutral is no cause for a warning


def test_a_checkpoint_keeps_its_embeddings_whatever_random_weights_would_start_with(make_job, pretrained):
    from tiny import load_masked_lm

    job = dataclasses.replace(make_job(pretrain__initial_embeddings="cooccurrence"), start_from_folder=pretrained)
    model = build_model(job, Tokenizer.load(job.tokenizer_folder), resolve_machine(job.runtime, "fp32"))
    theirs = load_masked_lm(pretrained).bert.embeddings.word_embeddings.weight
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, theirs)


def test_a_checkpoint_is_checked_by_the_headers_of_its_weights(pretrained, encoder):
    require_whole_checkpoint(pretrained)
    require_whole_checkpoint(encoder)
    weights = load_file(encoder / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    short = {**weights, name: weights[name][:-1].clone()}
    save_file(short, encoder / "model.safetensors")
    with pytest.raises(ArtifactError, match=rf"{name} has shape \[60, \d+\], config.json makes it \[61, \d+\]"):
        require_whole_checkpoint(encoder)
    save_file({key: tensor for key, tensor in weights.items() if key != name}, encoder / "model.safetensors")
    with pytest.raises(ArtifactError, match=f"lacks {name}"):
        require_whole_checkpoint(encoder)


@pytest.fixture
def enlarged_job(pretraining, pretrained, tmp_path):
    """A job that starts from the checkpoint with examples of three more words."""
    old = Tokenizer.load(pretrained)
    more = ("catsat", "kernel", old.vocab[20] * 2)
    pretraining.write_inputs(tmp_path)
    job = dataclasses.replace(pretraining.pretrain_job(tmp_path, tmp_path / "run"), start_from_folder=pretrained)
    new = Tokenizer(dataclasses.replace(old.vocabulary, tokens=(*old.vocab, *more)))
    manifest = read_json(job.examples_folder / MANIFEST_NAME)
    write_json(job.examples_folder / MANIFEST_NAME, {**manifest, "vocab_size": new.vocab_size})
    return job, old, new


def test_new_tokens_begin_as_means_and_all_else_is_the_checkpoint_bit_for_bit(enlarged_job, pretrained, tmp_path):
    job, old, new = enlarged_job
    model = build_model(job, new, resolve_machine(job.runtime, job.pretrain.precision))
    save_model(model, tmp_path / "enlarged")
    before, after = (load_file(folder / "model.safetensors") for folder in (pretrained, tmp_path / "enlarged"))
    assert before.keys() == after.keys()
    rows = ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")
    for name, tensor in before.items():
        kept = after[name][: old.vocab_size] if name in rows else after[name]
        assert torch.equal(kept, tensor), name
    for name in rows:
        for word, row in zip(new.vocab[old.vocab_size :], after[name][old.vocab_size :], strict=True):
            parts = before[name][old.encode(word)]
            assert torch.allclose(row, parts.mean(0), atol=1e-7), word
            assert len(parts) > 1


def test_rows_of_embeddings_that_stand_for_no_token_are_left_out(enlarged_job, pretrained, tmp_path, capfd):
    job, old, new = enlarged_job
    padded, plain = tmp_path / "padded", build_model(job, new, resolve_machine(job.runtime, job.pretrain.precision))
    shutil.copytree(pretrained, padded)
    weights = load_file(padded / "model.safetensors")
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        more = (64 - old.vocab_size, *weights[name].shape[1:])
        weights[name] = torch.cat([weights[name], torch.full(more, 7.0)])
    save_file(weights, padded / "model.safetensors", metadata={"format": "pt"})
    write_json(padded / "config.json", {**read_json(padded / "config.json"), "vocab_size": 64})
    job = dataclasses.replace(job, start_from_folder=padded)
    found = build_model(job, new, resolve_machine(job.runtime, job.pretrain.precision))
    assert "3 rows of the checkpoint's embeddings that stand for no token are left out" in capfd.readouterr().out
    for name, weight in plain.state_dict().items():
        assert torch.equal(found.state_dict()[name], weight), name


@pytest.mark.parametrize("damage", ["another token", "fewer"])
def test_another_vocabulary_than_the_checkpoints_is_refused(enlarged_job, pretrained, damage):
    job, old, new = enlarged_job
    tokens = (*old.vocab[:9], "other", *new.vocab[10:]) if damage == "another token" else old.vocab[:-1]
    checkpoint = Checkpoint.open(pretrained)
    expected = "token 9 is 'other'" if damage == "another token" else f"has {len(tokens)} tokens, the checkpoint"
    with pytest.raises(ConfigError, match=expected):
        refuse_misfits(checkpoint, misfits(checkpoint, job.model, tokens))
