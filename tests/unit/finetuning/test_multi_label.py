"""Several labels a row: the loss, the threshold that dev chooses, and what is saved."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertline.finetuning.finetune import fine_tune
from bertline.kinds.base import HeadSettings, LossOptions
from bertline.kinds.classification import MultiLabel
from bertline.tasks.stored_rows import MultiLabelRows
from bertline.tokenization.tokenizer import Tokenizer
from tiny import WORDS

LABELS = ("one", "two", "three")


@pytest.fixture
def kind(inputs):
    return MultiLabel(inputs.task(multi_label=True, metric="micro_f1", max_length=24), LABELS)


def rows_with(labels):
    """Rows of four words; each of the eight sets of labels has five words of its own."""
    labels, random = np.array(labels), np.random.default_rng(len(labels))
    texts = [" ".join(WORDS[5 * number + word] for word in random.integers(0, 5, 4)) for number in labels @ [1, 2, 4]]
    return MultiLabelRows([str(row) for row in range(len(labels))], texts, None, labels.astype(np.int64))


def random_rows(num_rows, seed):
    return rows_with(np.random.default_rng(seed).integers(0, 2, (num_rows, 3)))


def test_a_run_learns_labels_by_themselves(kind, encoder, job_of):
    settings = {"num_epochs": 10, "learning_rate": 3e-3, "dropout_prob": 0.0}
    result = fine_tune(job_of(kind, encoder, random_rows(320, 1), random_rows(64, 2), **settings))
    assert set(result.dev_scores) == {"accuracy", "macro_f1", "micro_f1"}
    # To give every row every label comes to two thirds.
    assert result.dev_scores["micro_f1"] > 0.8
    assert set(result.calibration) == {"threshold"}


def test_the_loss_is_binary_cross_entropy(kind):
    logits, labels = torch.randn(6, 3), torch.randint(0, 2, (6, 3))
    batch = {"labels": labels, "weights": torch.ones(6)}

    def loss(*options):
        return kind.loss_of_logits(logits, batch, LossOptions(*options)).item()

    plain = F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none")
    assert loss(0.0, None) == pytest.approx(plain.mean().item())
    assert loss(0.0, torch.full((3,), 7.0)) == pytest.approx(plain.mean().item())
    assert loss(0.0, torch.tensor([1.0, 0.0, 3.0])) == pytest.approx(
        ((plain[:, 0] + 3 * plain[:, 2]) / 4).mean().item()
    )
    smoothed = F.binary_cross_entropy_with_logits(logits, labels.float() * 0.8 + 0.1)
    assert loss(0.2, None) == pytest.approx(smoothed.item())


def test_dev_chooses_the_threshold_and_keeps_the_middle_where_nothing_is_better(kind):
    rows = rows_with([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    sure = np.where(rows.labels == 1, 0.9, 0.1).astype(np.float32)
    assert kind.calibrate(rows, sure) == {"threshold": 0.5}
    # Labels that are there get 0.3, others 0.1: the thresholds between are all right, the nearest to 0.5 is taken.
    shy = np.where(rows.labels == 1, 0.32, 0.1).astype(np.float32)
    calibration = kind.calibrate(rows, shy)
    assert calibration == {"threshold": 0.3}
    assert kind.scores(kind.statistics(rows, shy, calibration))["accuracy"] == 1.0
    assert kind.scores(kind.statistics(rows, shy, {}))["accuracy"] == 0.0


def test_the_table_has_no_label_one_label_and_several(kind):
    rows = rows_with([[1, 1, 0], [0, 0, 0]])
    predictions = np.array([[0.75, 0.75, 0.25], [0.25, 0.125, 0.625]], dtype=np.float32)
    table = kind.table(rows, predictions, {})
    assert table.select(["gold", "predicted", "score", "correct"]).to_pylist() == [
        {"gold": "one, two", "predicted": "one, two", "score": 0.75, "correct": True},
        {"gold": "", "predicted": "three", "score": 0.625, "correct": False},
    ]
    assert kind.details(rows, predictions, {})["by_label"]["three"] == {
        "f1": 0.0, "precision": 0.0, "recall": 0.0, "rows": 0,
    }  # fmt: skip


def test_windows_pool_each_label_by_itself(inputs, encoder, machine):
    config = inputs.task(
        multi_label=True, metric="micro_f1", long_texts="windows", window_pooling="max", max_length=12,
        window_overlap=2
    )  # fmt: skip
    kind = MultiLabel(config, LABELS)
    tokenizer = Tokenizer.load(encoder)
    model = kind.new_model(encoder, HeadSettings(0.0, 3, "plain"))
    chunks = [" ".join(WORDS[:10]), " ".join(WORDS[8:16])]

    def predicted(texts):
        rows = MultiLabelRows(
            [str(i) for i in range(len(texts))], texts, None, np.zeros((len(texts), 3), dtype=np.int64)
        )
        return kind.predict(model, kind.encode(rows, tokenizer), machine)

    assert predicted([" ".join(WORDS[:16])])[0] == pytest.approx(predicted(chunks).max(axis=0), abs=1e-6)
