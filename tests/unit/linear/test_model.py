"""Linear models in folders: the same predictions, without scikit-learn's estimators and without pickles."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import ComplementNB

import finetuning_inputs
import tiny
from bertline.foundation.errors import ArtifactError
from bertline.kinds.classification import Classification, MultiLabel
from bertline.kinds.regression import Regression, RegressionTaskConfig
from bertline.kinds.token_classification import TokenClassification, TokenClassificationTaskConfig
from bertline.linear.model import LINEAR_FILE, VOCABULARY_FILE, WEIGHTS_FILE, load_linear
from bertline.sweep.baselines.base import Baseline, BaselineInputs
from bertline.sweep.baselines.linear import LinearModel, window_tagger
from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TaggedRows, TextRows

SIZES = {"train": 60, "dev": 30, "test": 40}


def drawn(split, *, pairs=False, texts="words", num_labels=3):
    """Ids, texts and second texts, and a label of each row that its words tell."""
    random, size = np.random.default_rng(len(split)), SIZES[split]
    labels = random.integers(0, num_labels, size)
    words = [[f"Sign_{label}", *(f"w{word}" for word in random.integers(0, 50, 6))] for label in labels]
    marks = ["!?.,;"[label] * 3 for label in labels]
    first = marks if texts == "marks" else [" ".join(row) for row in words]
    second = [" ".join(row[:label]) + " other" for row, label in zip(words, labels, strict=True)] if pairs else None
    return [f"{split}{i}" for i in range(size)], first, second, labels


def baselines(case):
    """The baselines of a kind of task, and its test rows."""
    pairs, texts = case == "pairs", "marks" if case == "marks" else "words"
    splits = {name: drawn(name, pairs=pairs or case == "numbers", texts=texts) for name in SIZES}
    if case == "tags":
        config = TokenClassificationTaskConfig(
            kind="token_classification", source=None, head="softmax", outside_margin="none", metric="entity_f1",
            word_logits="first", word_case="plain", window_overlap=4, **tiny.task_fields(max_length=16),
        )  # fmt: skip
        kind = TokenClassification(config, ("O", "B-x", "I-x"))
        words = {name: [text.split(" ") for text in split[1]] for name, split in splits.items()}
        rows = {}
        for name, of_split in words.items():
            tags = [["B-x" if word == "Sign_1" else "O" for word in row] for row in of_split]
            rows[name] = TaggedRows(splits[name][0], splits[name][0], of_split, tags)
        given = BaselineInputs(kind=kind, train=rows["train"], dev=rows["dev"], tests={"test": rows["test"]})
        return kind, window_tagger(given, thresholds=(0.0, 0.3)), rows["test"]
    if case == "numbers":
        config = RegressionTaskConfig(
            kind="regression", source=finetuning_inputs.table_source(text_pair_column="other"), low=0.0, high=2.0,
            head="linear", pooling="mean", metric="spearman", **tiny.task_fields(max_length=16),
        )  # fmt: skip
        kind = Regression(config, ())
        rows = {name: NumberRows(*split[:3], split[3].astype(np.float64)) for name, split in splits.items()}
    elif case == "several":
        kind = MultiLabel(
            finetuning_inputs.task(multi_label=True, metric="macro_f1"), ("a", "b", "c", "never", "always")
        )
        hot = np.concatenate([np.eye(3, dtype=np.int64), [[0, 1]] * 3], axis=1)
        rows = {name: MultiLabelRows(*split[:3], hot[split[3]]) for name, split in splits.items()}
    else:
        metric = "negative_log_loss" if case == "sharpened" else "accuracy"
        kind = Classification(finetuning_inputs.task(metric=metric), ("not in train", "a", "b", "c"))
        rows = {
            name: TextRows(*split[:3], 1 + split[3] % (1 if case == "one" else 3)) for name, split in splits.items()
        }
    given = BaselineInputs(kind=kind, train=rows["train"], dev=rows["dev"], tests={"test": rows["test"]})
    return kind, kind.baselines(given), rows["test"]


def plain(predictions):
    return getattr(predictions, "labels", predictions)


@pytest.mark.parametrize("case", ["classes", "sharpened", "one", "marks", "pairs", "several", "numbers", "tags"])
def test_a_folder_predicts_what_the_baseline_did(case, tmp_path):
    _, made, test = baselines(case)
    saved = [one for one in made if one.save is not None]
    assert [one.name for one in made if one.save is None] == ([] if case == "tags" else [made[0].name])
    assert len(saved) == {"pairs": 2, "numbers": 2, "tags": 1}.get(case, 3)
    for baseline in saved:
        folder = tmp_path / baseline.name
        folder.mkdir()
        baseline.save(folder)
        assert {path.name for path in folder.iterdir()} == {LINEAR_FILE, VOCABULARY_FILE, WEIGHTS_FILE}
        predictor, title = load_linear(folder)
        assert title == baseline.title
        found = predictor(test)
        for given, again in zip(plain(baseline.predictions["test"]), plain(found), strict=True):
            np.testing.assert_allclose(again, given, rtol=0, atol=1e-12)
        if case == "tags":
            assert all((row > 0.3).all() and (row <= 1).all() for row in found.word_confidences)
            assert (folder / WEIGHTS_FILE).stat().st_size < 1e6  # of 2^20 buckets, those that train has


@pytest.mark.parametrize("num_labels", [2, 3])
@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        ("logistic_regression", LogisticRegression(C=0.5, max_iter=300)),
        ("complement_naive_bayes", ComplementNB(alpha=0.5)),
        ("ridge", Ridge(alpha=0.5)),
    ],
)
def test_weights_give_what_the_estimator_of_scikit_learn_gives(kind, theirs, num_labels):
    random = np.random.default_rng(0)
    features, gold = random.random((50, 8)), random.integers(0, num_labels, 50)
    theirs.fit(features, gold)
    expected = theirs.predict(features) if kind == "ridge" else theirs.predict_proba(features)
    found = LinearModel(kind, 0.5).fitted(features, gold, num_labels)(features)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (LINEAR_FILE, lambda text: text.replace('"format_version": 1', '"format_version": 9'), "reads 1"),
        (LINEAR_FILE, lambda text: text.replace('"NgramFeatures"', '"os.system"'), "Copy the folder again"),
        (WEIGHTS_FILE, lambda _: "", "Copy the folder again"),
        (VOCABULARY_FILE, lambda _: json.dumps({}), "Copy the folder again"),
    ],
)
def test_a_damaged_folder_is_named(tmp_path, name, damage, message):
    _, (_, words, *_), _ = baselines("classes")
    assert isinstance(words, Baseline) and words.save is not None
    words.save(tmp_path)
    path: Path = tmp_path / name
    path.write_text(damage("" if name == WEIGHTS_FILE else path.read_text()))
    with pytest.raises(ArtifactError, match=message):
        load_linear(tmp_path)
