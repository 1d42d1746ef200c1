"""Classifiers on the vectors of a sentence encoder, frozen or adapted by contrast."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import bertline
from bertline.encoders.loading import load_encoder, save_model
from bertline.export.card import usage_on_vectors
from bertline.finetuning.few_labels import vector_classifier
from bertline.finetuning.finetune import fine_tune
from bertline.finetuning.task_file import write_task_file
from bertline.kinds.classification import Classification
from bertline.modeling.heads import BertVectorClassifier
from bertline.modeling.text_vectors import VectorSettings, write_sentence_transformer
from bertline.tokenization.storage import copy_tokenizer


@pytest.fixture
def job(encoder, inputs, job_of):
    def make(labels=inputs.LABELS, numbers=None, folder=encoder, pairs=False, **config):
        task = inputs.task(max_length=24, labels=labels)
        source = replace(task.source, text_pair_column="text_pair" if pairs else None)
        kind = Classification(replace(task, source=source), labels)
        train, dev = (inputs.learnable_rows(num_rows, seed=num_rows, pairs=pairs) for num_rows in (64, 48))
        if numbers is not None:
            train = replace(train, labels=np.resize(numbers, len(train)))
        return job_of(kind, folder, train, dev, **config)

    return make


def vectors_of(model, split):
    with torch.no_grad():
        batch = split.encoded.sequences.batch(np.arange(len(split.rows)))
        return model.eval().vectors(*(batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")))


@pytest.mark.parametrize("labels", [("first half", "second half"), ("a", "b", "c")])
def test_the_classifier_is_scikit_learns_on_vectors_of_length_one(job, labels):
    run = job(labels=labels, numbers=None if len(labels) == 2 else np.arange(3), method="contrastive")
    model = vector_classifier(run)
    vectors = vectors_of(model, run.train).numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    theirs = LogisticRegression(C=10, max_iter=1000).fit(vectors, run.train.rows.labels).predict_proba(vectors)
    ours = run.kind.predict(model, run.train.encoded, run.machine)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("separators", [(3,), (3, 3)])  # [SEP]; </s></s>
def test_the_texts_of_a_pair_are_cut_out_whatever_their_token_types(encoder, separators):
    texts = [[5, 6, 7], [8, 9], []], [[10], [11, 12, 13], [14]]
    rows = [[2, *first, *separators, *second, 3] for first, second in zip(*texts, strict=True)]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    model = BertVectorClassifier(load_encoder(encoder), pooling="mean", classifier=torch.nn.Identity()).eval()
    with torch.no_grad():
        alone = [torch.cat([model(*alone_inputs([2, *text, 3])) for text in of_place]) for of_place in texts]
        model.separators = separators
        found = model(ids, torch.zeros_like(ids), mask)
    expected = torch.cat([(alone[0] - alone[1]).abs(), alone[0] * alone[1]], dim=1)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def alone_inputs(ids):
    return torch.tensor([ids]), torch.zeros(1, len(ids), dtype=torch.long), torch.ones(1, len(ids), dtype=torch.long)


def test_contrast_moves_texts_of_one_label_together_and_leaves_word_embeddings(job):
    run = job(method="contrastive", learning_rate=4e-3)
    before, after = (
        vector_classifier(replace(run, config=replace(run.config, method=m))) for m in ("frozen", "contrastive")
    )
    same = run.dev.rows.labels[:, None] == run.dev.rows.labels

    def margin(model):
        cosines = (vectors := vectors_of(model, run.dev)) @ vectors.T
        return float(cosines[same].mean() - cosines[~same].mean())

    assert margin(after) > margin(before) + 0.05
    words = [model.bert.embeddings.word_embeddings.weight for model in (before, after)]
    assert torch.equal(*words)


@pytest.mark.parametrize("method", ["frozen", "contrastive"])
@pytest.mark.parametrize("numbers", [[1], [*range(3), *[0] * 61]])
def test_labels_that_train_lacks_or_has_once_are_no_error(job, method, numbers):
    labels = ("a", "b", "c", "d")
    run = job(labels=labels, numbers=np.array(numbers), method=method)
    result = fine_tune(run)
    predicted = run.kind.predict(result.model, run.dev.encoded, run.machine)
    absent = sorted(set(range(4)) - set(numbers))
    assert (predicted[:, absent] == 0).all()
    np.testing.assert_allclose(predicted.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "pairs", "method"),
    [("mean", False, "contrastive"), ("cls", False, "contrastive"), ("cls", True, "frozen")],
)
def test_a_saved_classifier_predicts_the_same_and_its_folder_embeds_texts(
    job, encoder, tmp_path, pooling, pairs, method
):
    start = tmp_path / "start"
    save_model(load_encoder(encoder), start)
    copy_tokenizer(encoder, start)
    write_sentence_transformer(start, VectorSettings(pooling=pooling, similarity="cosine", prompts={}), max_length=24)
    run = job(folder=start, pairs=pairs, method=method)
    model, folder = vector_classifier(run), tmp_path / "saved"
    assert model.pooling == pooling
    run.kind.save_model(model, folder)
    copy_tokenizer(start, folder)
    write_task_file(folder, run.kind, {})
    loaded = bertline.load(folder)
    expected = run.kind.predict(model, run.dev.encoded, run.machine)
    texts, seconds = run.dev.rows.texts, run.dev.rows.text_pairs
    found = [list(one.probabilities.values()) for one in loaded.predict(texts, seconds)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    vectors = loaded.embed(texts)
    if pairs:
        others = loaded.embed(seconds)
        vectors = np.concatenate([np.abs(vectors - others), vectors * others], axis=1)
    np.testing.assert_allclose(vectors, vectors_of(model, run.dev), atol=1e-5)


@pytest.mark.parametrize("pairs", [False, True])
def test_the_snippet_of_the_card_gives_the_outputs_that_bertline_computes(job, encoder, tmp_path, monkeypatch, pairs):
    run, folder = job(pairs=pairs, method="frozen"), tmp_path / "saved"
    run.kind.save_model(vector_classifier(run), folder)
    copy_tokenizer(encoder, folder)
    write_task_file(folder, run.kind, {})
    loaded, texts = bertline.load(folder), ["One text.", "Another text."]
    stub = SimpleNamespace(SentenceTransformer=lambda name: SimpleNamespace(encode=bertline.load(name).embed))
    monkeypatch.setitem(sys.modules, "sentence_transformers", stub)
    snippets = usage_on_vectors(run.kind.usage({}, pair=pairs), folder, pair=pairs).snippets
    exec(snippets[0].replace("NAME", str(folder)), given := {})
    expected = loaded.predict(texts[:1], texts[1:]) if pairs else loaded.predict(texts)
    found = torch.tensor(given["outputs"]).softmax(1).tolist()
    np.testing.assert_allclose(found, [list(one.probabilities.values()) for one in expected], atol=1e-5)
    assert "bertline.load" in snippets[1] and len(snippets) == 2


def test_epochs_are_added_up_to_the_fewest_steps_and_cut_at_the_most(job):
    run = job(num_epochs=2, batch_size=16, fewest_steps=10)
    assert [check.epoch for check in fine_tune(run).checks] == [1, 2, 3]  # of four steps each
    assert [check.epoch for check in fine_tune(replace(run, most_steps=9)).checks] == [1, 2]
    assert [check.epoch for check in fine_tune(replace(run, most_steps=1)).checks] == [1]
