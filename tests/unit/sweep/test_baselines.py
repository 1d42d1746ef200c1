"""The baselines that an encoder has to beat."""

from __future__ import annotations

import numpy as np
import pytest

from bertline.finetuning.kinds.classification import Classification
from bertline.finetuning.kinds.multi_label import MultiLabel
from bertline.finetuning.kinds.regression import Regression
from bertline.sweep.baselines.choose import baselines_of
from bertline.sweep.baselines.numbers import PENALTIES
from bertline.sweep.baselines.text import REGULARISATION
from bertline.sweep.baselines.tfidf import TfidfCosine, TfidfFeatures
from bertline.tasks.config import RegressionTaskConfig
from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TextRows


def rows(texts, labels, pairs=None):
    return TextRows([str(i) for i in range(len(texts))], texts, pairs, np.array(labels))


def scored(kind, train, dev, test):
    """Scores of each baseline on dev and test, and what dev chose; as a sweep would have them."""
    found = {}
    for baseline in baselines_of(kind, train, dev, {"test": test}):
        assert set(baseline.predictions) == {"dev", "test"}
        calibration = kind.calibrate(dev, baseline.predictions["dev"])
        found[baseline.name] = {
            split: kind.scores(kind.statistics(split_rows, baseline.predictions[split], calibration))
            for split, split_rows in (("dev", dev), ("test", test))
        } | {"settings": baseline.settings}
    return found


@pytest.fixture
def classification(inputs):
    return Classification(inputs.task(), inputs.LABELS)


class TestOneLabel:
    def test_majority_says_the_most_frequent_label_of_train(self, classification):
        train, dev, test = rows(["a", "b", "c"], [1, 1, 0]), rows(["b"] * 2, [1, 0]), rows(["c"] * 4, [0, 0, 0, 1])
        found = scored(classification, train, dev, test)["majority"]
        assert (found["dev"]["accuracy"], found["test"]["accuracy"]) == (0.5, 0.25)

    def test_tfidf_learns_words_and_dev_chooses_its_penalty(self, classification, inputs):
        splits = [inputs.learnable_rows(n, seed=n) for n in (120, 60, 61)]
        found = scored(classification, *splits)["tfidf_logistic_regression"]
        assert found["dev"]["accuracy"] > 0.95 and found["test"]["accuracy"] > 0.95
        assert found["settings"]["c"] in REGULARISATION
        assert found == scored(classification, *splits)["tfidf_logistic_regression"]

    def test_the_words_of_the_two_texts_of_a_pair_are_told_apart(self, classification):
        # The label is on which side "yes" stands: a bag of both texts' words would know nothing.
        sides = [("yes now", "no then"), ("no then", "yes now")] * 20
        data = rows([left for left, _ in sides], [1, 0] * 20, [right for _, right in sides])
        assert scored(classification, data, data, data)["tfidf_logistic_regression"]["test"]["accuracy"] == 1.0

    def test_a_label_that_train_does_not_have_gets_no_probability(self, inputs):
        kind = Classification(inputs.task(), ("a", "b", "c"))
        data = rows(["one", "two"] * 10, [0, 2] * 10)
        for baseline in baselines_of(kind, data, data, {"test": data}):
            assert (baseline.predictions["test"][:, 1] == 0).all()
            assert baseline.predictions["test"].sum(axis=1) == pytest.approx(1)


class TestSeveralLabels:
    @pytest.fixture
    def kind(self, inputs):
        return MultiLabel(inputs.task(multi_label=True, metric="micro_f1"), ("art", "sport", "always", "never"))

    def rows(self, num_rows, seed):
        random = np.random.default_rng(seed)
        labels = np.concatenate(
            [random.integers(0, 2, (num_rows, 2)), np.ones((num_rows, 1)), np.zeros((num_rows, 1))], axis=1
        ).astype(np.int64)
        words = [["paint", "brush"], ["ball", "goal"]]
        texts = [
            " ".join(["today", *(words[label][random.integers(0, 2)] for label in (0, 1) if row[label])])
            for row in labels
        ]
        return MultiLabelRows([str(i) for i in range(num_rows)], texts, None, labels)

    def test_tfidf_learns_each_label_by_itself_and_knows_labels_of_all_and_of_no_rows(self, kind):
        found = scored(kind, self.rows(80, 1), self.rows(40, 2), self.rows(41, 3))
        assert found["tfidf_logistic_regression"]["test"]["accuracy"] == 1.0
        assert found["majority"]["test"]["accuracy"] < 0.5

    def test_majority_gives_labels_by_their_share_of_train(self, kind):
        train = self.rows(80, 1)
        majority = baselines_of(kind, train, train, {"test": train.first(3)})[0]
        assert majority.predictions["test"] == pytest.approx(np.tile(train.labels.mean(axis=0), (3, 1)))


class TestNumbers:
    @pytest.fixture
    def kind(self, inputs):
        fields = {
            "kind": "regression", "source": inputs.table_source(text_pair_column="other"), "low": 0.0, "high": 5.0,
            "head": "linear", "pooling": "mean", "metric": "spearman", "max_length": 16, "num_train_rows": None,
            "label_efficiency_rows": (), "dev_fraction": 0.1, "test_fraction": 0.1, "split_seed": 0,
            "start_from": None, "num_trials": None, "space": {}, "fine_tuning": {},
        }  # fmt: skip
        return Regression(RegressionTaskConfig(**fields), ())

    def rows(self, num_rows, seed, *, pairs=True):
        """Texts of five words out of many; the number is how many of them the second text shares."""
        random = np.random.default_rng(seed)
        shared = random.integers(0, 6, num_rows)
        first = [[f"w{word}" for word in random.permutation(200)[:10]] for _ in range(num_rows)]
        texts = [" ".join(words[:5]) for words in first]
        others = [" ".join(words[5 - n : 10 - n]) for words, n in zip(first, shared, strict=True)]
        ids = [str(i) for i in range(num_rows)]
        if not pairs:
            texts = [f"{' '.join(['great'] * n)} film" for n in shared]
        return NumberRows(ids, texts, others if pairs else None, shared.astype(np.float64))

    def test_the_mean_is_the_same_for_every_row_and_has_no_correlation(self, kind):
        train, dev, test = (self.rows(n, n) for n in (60, 30, 31))
        mean = baselines_of(kind, train, dev, {"test": test})[0]
        assert set(mean.predictions["test"]) == {train.numbers.mean()}
        assert scored(kind, train, dev, test)["mean"]["test"] == {"pearson": 0.0, "spearman": 0.0}

    def test_ridge_sees_how_many_words_a_pair_shares_even_words_it_has_rarely_seen(self, kind):
        found = scored(kind, self.rows(200, 1), self.rows(60, 2), self.rows(61, 3))["tfidf_ridge"]
        assert found["test"]["spearman"] > 0.9
        assert found["settings"]["penalty"] in PENALTIES

    def test_ridge_reads_single_texts_too_and_stays_on_the_scale(self, kind):
        train, dev, test = (self.rows(n, n, pairs=False) for n in (60, 30, 31))
        ridge = baselines_of(kind, train, dev, {"test": test})[1]
        assert ridge.predictions["test"].min() >= 0.0 and ridge.predictions["test"].max() <= 5.0
        assert scored(kind, train, dev, test)["tfidf_ridge"]["test"]["spearman"] > 0.8


def test_the_cosine_of_equal_texts_is_1_and_of_texts_without_a_shared_word_0():
    data = rows(["one two", "one two", "new"], [0, 0, 0], ["two one", "three four", "other"])
    assert TfidfCosine(data)(data) == pytest.approx([1.0, 0.0, 0.0])


def test_texts_without_any_letter_have_features_too():
    data = rows(["!!", "?!", ""], [0, 1, 0])
    assert TfidfFeatures(data)(data).shape[0] == 3
