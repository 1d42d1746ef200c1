"""Classification: long texts in windows, weights, and what is saved."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bertline.finetuning.finetune import fine_tune
from bertline.kinds.base import HeadSettings, LossOptions
from bertline.kinds.classification import Classification, MultiLabel
from bertline.kinds.predictor import TaskPredictor
from bertline.tasks.metrics.classification import counts_of_rows, scores_of_counts
from bertline.tasks.stored_rows import MultiLabelRows, TextRows
from tiny import WORDS

LOW, HIGH = " ".join(WORDS[:10]), " ".join(WORDS[20:30])
WINDOWED = {"long_texts": "windows", "window_overlap": 2, "max_length": 12}


@pytest.fixture
def model(encoder, inputs):
    return Classification(inputs.task(), inputs.LABELS).new_model(encoder, HeadSettings(0.1, 3, "plain"))


def rows_of(texts, labels):
    return TextRows([str(row) for row in range(len(texts))], texts, None, np.array(labels))


def test_the_probabilities_of_a_row_are_those_of_its_windows_pooled(inputs, tokenizer, model, machine):
    kind = Classification(inputs.task(**WINDOWED), inputs.LABELS)
    long = " ".join(WORDS[:25])
    rows = rows_of(["word1 word2", long, "word30"], [0, 0, 1])
    encoded = kind.encode(rows, tokenizer)
    assert encoded.num_windows.tolist() == [1, 3, 1]
    found = kind.predict(model, encoded, machine)
    # Each chunk as a text of its own.
    chunks = [" ".join(WORDS[start : min(start + 10, 25)]) for start in (0, 8, 16)]
    alone = kind.predict(model, kind.encode(rows_of(["word1 word2", *chunks, "word30"], [0] * 5), tokenizer), machine)
    assert found[0] == pytest.approx(alone[0], abs=1e-6)
    assert found[1] == pytest.approx(alone[1:4].mean(axis=0), abs=1e-6)
    assert found[2] == pytest.approx(alone[4], abs=1e-6)
    assert found.sum(axis=1) == pytest.approx(1, abs=1e-6)


def test_a_long_text_weighs_as_much_in_training_as_a_short_one(inputs, tokenizer):
    kind = Classification(inputs.task(**WINDOWED), inputs.LABELS)
    rows = rows_of(["word1", " ".join(WORDS), "word30", " ".join(WORDS[:15])], [0, 1, 1, 0])
    encoded = kind.encode(rows, tokenizer)
    by_label = {0: 0.0, 1: 0.0}
    total, num_windows = 0.0, 0
    for batch in kind.training_batches(encoded, batch_size=3, seed=0):
        for label, weight in zip(batch["labels"].tolist(), batch["weights"].tolist(), strict=True):
            by_label[label] += weight
            total, num_windows = total + weight, num_windows + 1
    assert num_windows == len(encoded.sequences) == 1 + 5 + 1 + 2
    assert total == pytest.approx(num_windows)
    assert by_label[0] == pytest.approx(by_label[1])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0]])
def test_without_windows_the_loss_is_pytorchs_own(inputs, smoothing, weights):
    kind = Classification(inputs.task(), inputs.LABELS)
    logits, labels = torch.randn(9, 2), torch.tensor([0, 1, 1, 0, 1, 1, 1, 0, 1])
    weights = None if weights is None else torch.tensor(weights)
    found = kind.hard_loss(None, logits, {"labels": labels, "weights": torch.ones(9)}, LossOptions(smoothing, weights))
    assert found.item() == pytest.approx(
        F.cross_entropy(logits, labels, weight=weights, label_smoothing=smoothing).item(), rel=1e-6
    )


@given(
    logits=st.lists(st.tuples(*[st.floats(-30, 30, width=32)] * 3), min_size=1, max_size=6),
    gamma=st.floats(0, 5),
    weights=st.sampled_from([None, (0.5, 2.0, 1.0)]),
    several=st.booleans(),
)
# Certain to rounding, where the power has no finite gradient.
@example(logits=[(30.0, -30.0, -30.0)], gamma=0.5, weights=None, several=False)
@example(logits=[(-30.0, 30.0, -30.0)], gamma=0.5, weights=None, several=True)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_focal_loss_is_that_of_a_plain_loop(inputs, logits, gamma, weights, several):
    """Lin et al., equation 5: -alpha (1 - p)^gamma log(p), p being what the true label, or its absence, gets."""
    names, scale = ("a", "b", "c"), weights or (1.0, 1.0, 1.0)
    expected, labels = [], []
    for row in range(len(logits)):
        odds = [math.exp(value) for value in logits[row]]
        if several:
            labels.append([(row + label) % 2 for label in range(3)])
            true = [
                (x if y else 1.0) / (1 + x) if math.isfinite(x) else float(y)
                for x, y in zip(odds, labels[row], strict=True)
            ]
            losses = [w * (1 - p) ** gamma * -math.log(p) for w, p in zip(scale, true, strict=True)]
            expected.append(sum(losses) / sum(scale))
        else:
            labels.append(row % 3)
            p = odds[row % 3] / sum(odds)
            expected.append(scale[row % 3] * (1 - p) ** gamma * -math.log(p))
    mean = len(logits) if several or weights is None else sum(scale[label] for label in labels)
    kind = (
        MultiLabel(inputs.task(multi_label=True, metric="micro_f1"), names)
        if several
        else Classification(inputs.task(), names)
    )
    tensor = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    batch = {"labels": torch.tensor(labels), "weights": torch.ones(len(logits), dtype=torch.float32)}
    options = LossOptions(0.0, None if weights is None else torch.tensor(weights, dtype=torch.float32), gamma)
    loss = kind.hard_loss(None, tensor, batch, options)
    assert loss.item() == pytest.approx(sum(expected) / mean, rel=1e-4, abs=1e-6)
    loss.backward()
    assert tensor.grad.isfinite().all()
    precise = LossOptions(0.0, None if weights is None else options.class_weights.double(), gamma)
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        loss = kind.hard_loss(None, tensor.detach().double(), batch, precise)
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(sum(expected) / mean, rel=1e-5, abs=1e-9)


def test_a_label_without_rows_is_in_no_macro_f1(inputs):
    """It is that of scikit-learn with the labels that the rows have."""
    one = Classification(inputs.task(), ("a", "b", "c"))
    several = MultiLabel(inputs.task(multi_label=True, metric="micro_f1"), ("a", "b", "c"))
    gold, predicted = np.array([0, 1, 1, 0]), np.array([0, 1, 2, 0])
    assert one.scores(np.column_stack([gold, predicted, np.eye(3)[predicted]]))["macro_f1"] == pytest.approx(
        (1 + 2 / 3) / 2
    )
    both = np.concatenate([np.eye(3)[gold], np.eye(3)[predicted]], axis=1)
    assert several.scores(both)["macro_f1"] == pytest.approx((1 + 2 / 3) / 2)
    counts = counts_of_rows([gold], [predicted], 3)
    assert scores_of_counts(counts)["macro_f1"] == pytest.approx((1 + 2 / 3) / 2)


def test_dev_alone_chooses_the_threshold_and_every_reader_of_the_model_uses_it(inputs):
    kind = Classification(inputs.task(threshold_metric="f1"), ("no", "yes"))
    rows = rows_of([LOW] * 4, [0, 0, 1, 1])
    shy = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]], dtype=np.float32)
    plain = Classification(inputs.task(), ("no", "yes"))
    assert plain.scores(plain.statistics(rows, shy, plain.calibrate(rows, shy)))["f1"] == 0.0
    calibration = kind.calibrate(rows, shy)
    assert 0.2 < calibration["threshold"] < 0.3
    scores = kind.scores(kind.statistics(rows, shy, calibration))
    assert scores["f1"] == scores["accuracy"] == 1.0
    assert kind.table(rows, shy, calibration)["predicted"].to_pylist() == ["no", "no", "yes", "yes"]
    assert kind.details(rows, shy, calibration)["confusion_matrix"] == [[2, 0], [0, 2]]
    assert not kind.is_degenerate(rows, shy, calibration)
    # Another split has no say in it: its labels are not read.
    other = rows_of([LOW] * 4, [1, 1, 0, 0])
    assert kind.scores(kind.statistics(other, shy, calibration))["accuracy"] == 0.0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"metric": "f_beta"}, "f_beta needs beta"),
        ({"threshold_metric": "f_beta"}, "f_beta needs beta"),
        ({"beta": 0.0}, "beta must be above 0"),
        ({"multi_label": True, "metric": "auroc"}, "metric auroc is for one label a row"),
        ({"multi_label": True, "threshold_metric": "f1", "metric": "micro_f1"}, "metric chooses the threshold"),
        ({"labels": ("a", "b", "c"), "threshold_metric": "f1"}, "threshold_metric f1 is for two labels, found 3: a, b"),
        ({"labels": ("a", "b", "c"), "metric": "f1"}, "metric f1 is for two labels, found 3"),
    ],
)
def test_a_metric_that_does_not_fit_the_labels_is_refused(inputs, changes, problem):
    with pytest.raises(ValueError, match=problem):
        inputs.task(**changes)


def test_a_served_model_predicts_by_the_threshold_on_the_probabilities_that_it_shows(inputs, model, tokenizer):
    kind = Classification(inputs.task(), inputs.LABELS)
    first, second = inputs.LABELS
    (shown,) = TaskPredictor(kind, {}, model, tokenizer).predict([HIGH])
    probability = shown.probabilities[second]
    for threshold, label in ((probability, second), (np.nextafter(probability, 1.0), first)):
        served = TaskPredictor(kind, {"threshold": threshold}, model, tokenizer)
        (found,) = served.predict([HIGH])
        assert found == (label, shown.probabilities[label], shown.probabilities)
        assert served.file_outputs([HIGH])[0]["predicted"] == label


# Several labels a row: the loss, the threshold that dev chooses, and what is saved.


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
    assert set(result.dev.scores) == {"accuracy", "macro_f1", "micro_f1"}
    # To give every row every label comes to two thirds.
    assert result.dev.scores["micro_f1"] > 0.8
    assert set(result.dev.calibration) == {"threshold"}


def test_smoothing_moves_the_targets_of_binary_cross_entropy_towards_one_half(kind):
    logits, labels = torch.randn(6, 3), torch.randint(0, 2, (6, 3))
    loss = kind.hard_loss(None, logits, {"labels": labels, "weights": torch.ones(6)}, LossOptions(0.2))
    torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(logits, labels.float() * 0.8 + 0.1))


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
