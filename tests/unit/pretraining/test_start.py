"""Starting from a checkpoint: one without a masked language model head begins at the unigram distribution."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertline.examples.build import target_counts, unigram_entropy
from bertline.examples.masking import masking_policy
from bertline.examples.store import ExampleStore, token_counts
from bertline.foundation.errors import ArtifactError
from bertline.foundation.metrics_log import read_metrics
from bertline.modeling.huggingface import require_whole_checkpoint
from bertline.pretraining.run import run_pretraining
from bertline.pretraining.start import has_mlm_head, start_at_unigrams


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


def validation_losses(job):
    return [row.metrics["val/mlm_loss"] for row in read_metrics(job.metrics_path) if "val/mlm_loss" in row.metrics]


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
    run_pretraining(job)
    assert validation_losses(job)[0] <= entropy_of(job, job.pretrain.phases[0].max_length) + 0.05
    said = capfd.readouterr()
    assert "cls.predictions" not in said.err + said.out  # what starts neutral is no cause for a warning


def test_a_checkpoint_with_a_head_keeps_it(pretrained, encoder):
    assert has_mlm_head(pretrained) and not has_mlm_head(encoder)


def test_the_first_prediction_is_the_frequencies_whatever_the_encoder_says(make_job, pretrained):
    from bertline.modeling.huggingface import load_masked_lm

    model = load_masked_lm(pretrained)
    counts = np.arange(model.bert.vocab_size)
    before = model.bert.embeddings.word_embeddings.weight.clone()
    start_at_unigrams(model, counts, (), seed=3)
    hidden = 5 * torch.randn(4, 7, model.bert.config.hidden_size)
    logits = model.mlm_head(hidden, model.bert.embeddings.word_embeddings.weight)
    expected = torch.from_numpy((counts + 1) / (counts + 1).sum()).float()
    assert torch.allclose(logits.softmax(-1), expected.expand(4, 7, -1), rtol=1e-3)
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, before)
    logits[0, 0, 9].backward()
    assert model.mlm_head.transform.weight.grad.abs().sum() > 0


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
