import numpy as np
import pytest

from bertline.evaluation.facts import PipelineFolders, read_facts
from bertline.evaluation.task_charts import mean_vectors, neighbours_agree, principal_components, vector_space
from evaluation_inputs import KINDS


def test_the_first_component_is_the_widest_direction_with_a_fixed_sign() -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(200, 3)) * [10.0, 1.0, 0.1] + 5
    places, shares = principal_components(points.astype(np.float32))
    flipped, _ = principal_components(points.astype(np.float32)[::-1])
    assert shares[0] > 0.95
    assert np.corrcoef(places[:, 0], points[:, 0])[0, 1] > 0.99
    np.testing.assert_allclose(flipped[::-1], places, atol=1e-3)


def test_a_vector_does_not_depend_on_the_texts_it_shares_a_batch_with(pipeline: PipelineFolders) -> None:
    texts = ["the kernel", "the kernel of a frame is in series", "value"]
    together = mean_vectors(pipeline.pretrain, texts, max_length=32)
    alone = np.concatenate([mean_vectors(pipeline.pretrain, [text], max_length=32) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize(("name", "drawn"), [(name, name == "library") for name in KINDS])
def test_single_passages_of_one_label_each_are_drawn_and_nothing_else(
    whole_pipeline: PipelineFolders, name: str, drawn: bool
) -> None:
    task = next(task for task in read_facts(whole_pipeline, "title").tasks if task.name == name)
    assert (vector_space(task, whole_pipeline, num_points=12) is not None) is drawn


def test_neighbours_in_clusters_agree_and_those_of_a_random_label_agree_by_chance() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(300) % 3
    clusters = (np.eye(3)[labels] * 10 + random.normal(size=(300, 3))).astype(np.float32)
    assert neighbours_agree(clusters, labels) == (1.0, pytest.approx(99 / 299))
    agreeing, chance = neighbours_agree(clusters, random.permutation(labels))
    assert abs(agreeing - chance) < 0.1
