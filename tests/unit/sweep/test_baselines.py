"""The baselines that an encoder has to beat."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import tiny
from bertline.baselines.base import BaselineInputs
from bertline.baselines.linear import RIDGES, SVMS, linear_baseline
from bertline.kinds.classification import Classification, MultiLabel
from bertline.kinds.regression import Regression, RegressionTaskConfig
from bertline.linear.features import NgramFeatures, PairOverlap
from bertline.tasks.stored_rows import MultiLabelRows, NumberRows, TextRows
from sweep_pieces import baselines_of


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


def overlapping_pairs(num_rows, *, seed, shape):
    """Every word is seen once or twice; the label says whether the second text has two words of the first."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, num_rows)
    firsts, seconds = [], []
    for label in labels:
        words = ["".join(random.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(9)]
        shared = words[:2] if label else words[5:7]
        firsts.append(" ".join(words[:5]))
        seconds.append(" ".join(shape(word) for word in [*shared, *words[7:]]))
    return rows(firsts, labels, seconds)


@pytest.fixture
def classification(inputs):
    return Classification(inputs.task(), inputs.LABELS)


class TestOneLabel:
    @pytest.mark.parametrize("name", ["word_ngrams", "char_ngrams", "word_and_char_ngrams"])
    def test_ngrams_learn_words_and_dev_chooses_the_model(self, classification, inputs, name):
        splits = [inputs.learnable_rows(n, seed=n) for n in (120, 60, 61)]
        found = scored(classification, *splits)[name]
        assert found["dev"]["accuracy"] > 0.95 and found["test"]["accuracy"] > 0.95
        assert found["settings"]["model"] in ("linear_svm", "complement_naive_bayes")
        assert found == scored(classification, *splits)[name]

    @pytest.mark.parametrize(
        ("metric", "num_labels", "noise"),
        [("negative_log_loss", 2, 0.0), ("negative_log_loss", 3, 0.03), ("negative_brier_score", 2, 0.03)],
    )
    def test_a_metric_of_probabilities_reads_those_that_dev_has_sharpened(self, inputs, metric, num_labels, noise):
        random = np.random.default_rng(0)

        def split(num_rows):
            gold = random.integers(0, num_labels, num_rows)
            texts = [f"sign{label} {' '.join(f'w{word}' for word in random.integers(0, 99, 5))}" for label in gold]
            return rows(texts, np.where(random.random(num_rows) < noise, (gold + 1) % num_labels, gold))

        train, dev, test = split(150), split(60), split(100)
        features = NgramFeatures.fitted(train, "word")

        def ngrams(metric):
            kind = Classification(inputs.task(metric=metric), tuple("abc"[:num_labels]))
            given = BaselineInputs(kind=kind, train=train, dev=dev, tests={"test": test})
            return kind, linear_baseline(given, "", "", (train, train.labels), lambda _: {"": (features, SVMS)})

        (kind, found), (_, by_accuracy) = ngrams(metric), ngrams("accuracy")
        loss = -kind.score(kind.statistics(test, found.predictions["test"], {}))
        of_regressions = []
        for c in (1, 10, 100, 1000):
            fitted = LogisticRegression(C=c).fit(features(train), train.labels)
            one = [-kind.score(kind.statistics(some, fitted.predict_proba(features(some)), {})) for some in (dev, test)]
            of_regressions.append(one)
        assert loss < 1.2 * min(of_regressions)[1] + 0.001
        assert "sharpness" in found.settings and "sharpness" not in by_accuracy.settings

    @pytest.mark.parametrize("shape", [str, "get_{}_now".format, "x{}Value".format])
    def test_the_pair_baseline_sees_overlap_where_each_text_alone_says_nothing(self, classification, shape):
        splits = [overlapping_pairs(n, seed=n, shape=shape) for n in (200, 80, 120)]
        found = scored(classification, *splits)
        assert found["pair_features"]["test"]["accuracy"] > 0.95
        assert found["word_ngrams"]["test"]["accuracy"] < 0.65

    @pytest.mark.parametrize("pairs", [False, True])
    def test_empty_texts_few_rows_and_other_scripts_are_read(self, inputs, pairs):
        texts = ["", "猫が好き", "собака лает", "!!", "Ünïcödé", " "] * 3
        data = rows(texts, [0, 1, 1, 0, 1, 0] * 3, texts[::-1] if pairs else None)
        for name, found in scored(Classification(inputs.task(), ("a", "b")), data, data, data).items():
            assert 0 <= found["test"]["accuracy"] <= 1, name

    @pytest.mark.parametrize("labels", [[0, 2], [2, 2]])
    def test_a_label_that_train_does_not_have_gets_no_probability(self, inputs, labels):
        kind = Classification(inputs.task(), ("a", "b", "c"))
        data = rows(["one", "two"] * 10, labels * 10)
        for baseline in baselines_of(kind, data, data, {"test": data}):
            found = baseline.predictions["test"]
            assert (found[:, [label for label in range(3) if label not in labels]] == 0).all()
            assert found.sum(axis=1) == pytest.approx(1)


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

    def test_each_label_is_learnt_by_itself_and_those_of_all_and_of_no_rows_are_known(self, kind):
        found = scored(kind, self.rows(80, 1), self.rows(40, 2), self.rows(41, 3))
        assert found["word_ngrams"]["test"]["accuracy"] == 1.0
        assert found["majority"]["test"]["accuracy"] < 0.5


class TestNumbers:
    @pytest.fixture
    def kind(self, inputs):
        config = RegressionTaskConfig(
            kind="regression", source=inputs.table_source(text_pair_column="other"), low=0.0, high=5.0, head="linear",
            pooling="mean", metric="spearman", **tiny.task_fields(max_length=16),
        )  # fmt: skip
        return Regression(config, ())

    def rows(self, num_rows, seed):
        """Texts of five words out of many; the number is how many of them the second text shares."""
        random = np.random.default_rng(seed)
        shared = random.integers(0, 6, num_rows)
        first = [[f"w{word}" for word in random.permutation(200)[:10]] for _ in range(num_rows)]
        texts = [" ".join(words[:5]) for words in first]
        others = [" ".join(words[5 - n : 10 - n]) for words, n in zip(first, shared, strict=True)]
        ids = [str(i) for i in range(num_rows)]
        return NumberRows(ids, texts, others, shared.astype(np.float64))

    def test_ridge_sees_how_many_words_a_pair_shares_even_words_it_has_rarely_seen(self, kind):
        found = scored(kind, self.rows(200, 1), self.rows(60, 2), self.rows(61, 3))["pair_features"]
        assert found["test"]["spearman"] > 0.9
        assert found["settings"]["penalty"] in [model.strength for model in RIDGES]


class TestOverlap:
    def test_shares_are_those_of_a_count_by_hand(self):
        overlap = PairOverlap.fitted(["a b c d"], ["c d e"])
        jaccard, first, second, *weighed = overlap(["a b c d"], ["c d e"])[0, :6]
        assert (jaccard, first, second) == pytest.approx((2 / 5, 2 / 4, 2 / 3))
        # c and d occur in both texts of train, and so weigh less than the others.
        assert (np.array(weighed) < (jaccard, first, second)).all()
