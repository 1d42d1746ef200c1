"""Linear models in folders: the same predictions, without scikit-learn's estimators and without pickles."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import ComplementNB

from bertline.baselines.linear import LinearModel
from bertline.foundation.errors import ArtifactError
from bertline.linear.features import NgramFeatures
from bertline.linear.model import LINEAR_FILE, VOCABULARY_FILE, WEIGHTS_FILE, LinearPredictor, load_linear
from bertline.tasks.stored_rows import TextRows
from linear_models import baselines


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
        assert predictor.weights.coefficients.T.flags.c_contiguous  # else SciPy copies it for every request
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
    rows = TextRows(["a", "b"], ["one text", "another"], None, np.array([0, 1]))
    features = NgramFeatures.fitted(rows, "word")
    weights = LinearModel("linear_svm", 1.0).fitted(features(rows), rows.labels, 2)
    LinearPredictor(features, weights).save(tmp_path, "n-grams")
    path: Path = tmp_path / name
    path.write_text(damage("" if name == WEIGHTS_FILE else path.read_text()))
    with pytest.raises(ArtifactError, match=message):
        load_linear(tmp_path)
