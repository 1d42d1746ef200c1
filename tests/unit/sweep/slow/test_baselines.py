"""The baselines that an encoder has to beat."""

from __future__ import annotations

import numpy as np
import pytest

import tiny
from bertline.baselines.frozen_encoder import FrozenEncoder
from bertline.kinds.classification import Classification
from sweep_pieces import baselines_of


@pytest.fixture
def classification(inputs):
    return Classification(inputs.task(), inputs.LABELS)


class TestVectors:
    """An encoder whose words mean something before any training: each word's vector is one of its own."""

    @pytest.fixture
    def encoder(self, input_folder):
        return FrozenEncoder(input_folder / "encoder", tiny.machine(), max_length=16)

    @pytest.mark.parametrize("pairs", [False, True])
    def test_linear_models_over_vectors_learn_and_are_the_same_again(self, classification, inputs, encoder, pairs):
        train, dev, test = (inputs.learnable_rows(n, seed=n, pairs=pairs) for n in (200, 60, 61))
        twice = [baselines_of(classification, train, dev, {"test": test}, encoder)[-2:] for _ in range(2)]
        for name, *found in zip(("static_embeddings", "frozen_encoder"), *twice, strict=True):
            assert [baseline.name for baseline in found] == [name, name]
            scores = classification.scores(classification.statistics(test, found[0].predictions["test"], {}))
            assert scores["accuracy"] > 0.8, name
            assert np.array_equal(found[0].predictions["test"], found[1].predictions["test"])

    def test_a_static_vector_is_the_weighted_mean_of_the_tokens_vectors(self, encoder):
        choices = encoder.static_choices(["word1"] * 50 + ["word2"])
        one, two, both = choices["none"](["word1", "word2", "word2 word1"])
        assert both == pytest.approx((one + two) / 2, abs=1e-5)
        weighed = choices["frequency"](["word1 word2"])[0]
        # The rarer word weighs more.
        assert np.linalg.norm(weighed - two) < np.linalg.norm(weighed - one)
        assert (choices["none"]([""]) == 0).all()
