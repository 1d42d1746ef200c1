"""Search spaces: merging, whole numbers, and points that are planned."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bertline.config import pipeline_config
from bertline.foundation.errors import ConfigError
from bertline.sweep.config import ModelSamplerConfig, PlannedSamplerConfig
from bertline.sweep.space import planned_points, space_of, space_of_arm
from bertline.tasks.config import ChoiceSpace, LogUniformSpace

ROOT = Path(__file__).resolve().parents[3]
RATES = LogUniformSpace(kind="log_uniform", low=1e-5, high=1e-3)
RANDOM = PlannedSamplerConfig(kind="random")


def choice(*values):
    return ChoiceSpace(kind="choice", values=values)


def test_a_tasks_entry_replaces_the_sweeps_and_the_others_stay(inputs):
    sweep = inputs.sweep(space={"learning_rate": RATES, "batch_size": choice(16.0)})
    task = inputs.task(space={"batch_size": choice(8.0, 32.0)})
    assert space_of(sweep, task) == {"learning_rate": RATES, "batch_size": choice(8.0, 32.0)}


@pytest.mark.parametrize(("values", "says"), [(choice(16.5), "16.5"), (RATES, "log_uniform")])
def test_a_number_that_must_be_whole_is_checked_before_any_work(inputs, values, says):
    with pytest.raises(ConfigError, match=rf"num_epochs takes whole numbers.*{says}"):
        space_of(inputs.sweep(space={"num_epochs": values}), inputs.task())


def test_a_value_that_the_task_fixes_is_not_varied_unless_the_task_itself_varies_it(inputs):
    sweep = inputs.sweep(space={"learning_rate": RATES, "batch_size": choice(16.0)})
    assert set(space_of(sweep, inputs.task(fine_tuning={"batch_size": 8}))) == {"learning_rate"}
    both = inputs.task(fine_tuning={"batch_size": 8}, space={"batch_size": choice(4.0)})
    assert space_of(sweep, both)["batch_size"] == choice(4.0)


def test_where_nothing_is_trained_there_is_nothing_to_vary_and_no_trial(inputs):
    task = inputs.task(fine_tuning={"num_epochs": 0})
    assert space_of(inputs.sweep(), task) == {}
    assert planned_points(inputs.sweep(), task) == []


def test_what_is_no_number_cannot_be_varied(inputs):
    with pytest.raises(ConfigError, match="class_weights cannot be varied"):
        space_of(inputs.sweep(space={"class_weights": choice(0.0)}), inputs.task())


def test_a_grid_has_every_combination_once_in_an_order_of_its_seed(inputs):
    points = planned_points(inputs.sweep(), inputs.task())
    assert len(points) == 6
    assert len({tuple(point.items()) for point in points}) == 6
    assert planned_points(inputs.sweep(seed=1), inputs.task()) != points
    assert planned_points(inputs.sweep(num_trials=4), inputs.task()) == points[:4]


def test_random_points_lie_in_the_space_and_do_not_depend_on_their_number(inputs):
    space = {"learning_rate": RATES, "batch_size": choice(8.0, 16.0)}
    few, many = (
        planned_points(inputs.sweep(sampler=RANDOM, space=space, num_trials=n), inputs.task()) for n in (5, 50)
    )
    assert many[:5] == few
    assert all(RATES.low <= point["learning_rate"] <= RATES.high for point in many)
    assert {point["batch_size"] for point in many} == {8, 16}
    assert len({point["learning_rate"] for point in many}) == 50


def test_a_model_draws_the_points_when_trials_begin_and_an_empty_space_is_no_trial(inputs):
    for kind in ("tpe", "gp"):
        sampler = ModelSamplerConfig(kind=kind, num_startup_trials=2)
        assert planned_points(inputs.sweep(sampler=sampler), inputs.task()) == [{}] * 6
    assert planned_points(inputs.sweep(space={}), inputs.task()) == []


def test_quasi_random_points_cover_the_space_evenly_and_do_not_depend_on_their_number(inputs):
    space = {"learning_rate": RATES, "batch_size": choice(8.0, 16.0)}
    sampler = PlannedSamplerConfig(kind="qmc")
    few, many = (
        planned_points(inputs.sweep(sampler=sampler, space=space, num_trials=n), inputs.task()) for n in (5, 65)
    )
    assert many[:5] == few
    assert planned_points(inputs.sweep(sampler=sampler, space=space, seed=1, num_trials=5), inputs.task()) != few
    # Of the 64 points after the first, a random one, four lie in each of 16 equal parts of the range.
    parts = [int(16 * math.log(point["learning_rate"] / RATES.low, RATES.high / RATES.low)) for point in many[1:]]
    assert Counter(parts) == dict.fromkeys(range(16), 4)
    assert {type(point["batch_size"]) for point in many} == {int}
    epochs = inputs.sweep(sampler=sampler, space=space, num_trials=6)
    assert len({point["num_epochs"] for point in planned_points(epochs, inputs.task(), "random_weights")}) == 3


class TestRandomWeights:
    def test_they_have_their_own_numbers_of_epochs_and_the_encoder_has_not(self, inputs):
        sweep = inputs.sweep(fine_tuning=inputs.fine_tuning(num_epochs=6))
        assert space_of_arm(sweep, inputs.task(), "random_weights")["num_epochs"] == choice(3.0, 6.0, 12.0)
        assert space_of_arm(sweep, inputs.task(), "encoder") == space_of(sweep, inputs.task())
        fixed = inputs.task(fine_tuning={"num_epochs": 4})
        assert space_of_arm(sweep, fixed, "random_weights")["num_epochs"] == choice(2.0, 4.0, 8.0)

    def test_there_are_at_least_three_even_of_one_epoch(self, inputs):
        one = inputs.task(fine_tuning={"num_epochs": 1})
        assert space_of_arm(inputs.sweep(), one, "random_weights")["num_epochs"] == choice(1.0, 2.0, 4.0)
        with pytest.raises(ValueError, match="at least three"):
            inputs.sweep(random_weights_epochs=(1.0, 2.0))

    def test_each_number_is_tried_however_few_trials_there_are(self, inputs):
        sweep = inputs.sweep(sampler=RANDOM, fine_tuning=inputs.fine_tuning(num_epochs=6))
        points = planned_points(sweep, inputs.task(num_trials=1), "random_weights")
        assert [point["num_epochs"] for point in points] == [3, 6, 12]
        rates = [{**point, "num_epochs": None} for point in planned_points(sweep, inputs.task(num_trials=3))]
        assert [{**point, "num_epochs": None} for point in points] == rates


def test_random_choices_repeat_no_point(inputs):
    space = {"learning_rate": choice(1e-3, 2e-3, 3e-3), "batch_size": choice(16.0, 32.0)}
    orders = set()
    for seed in range(20):
        sweep = inputs.sweep(sampler=RANDOM, space=space, num_trials=12, seed=seed)
        points = [tuple(point.items()) for point in planned_points(sweep, inputs.task())]
        assert len(points) == len(set(points)) == 6
        fewer = planned_points(replace(sweep, num_trials=4), inputs.task())
        assert [tuple(point.items()) for point in fewer] == points[:4]
        orders.add(tuple(points))
    assert len(orders) == 20


def test_the_points_of_the_default_tasks_are_those_of_the_committed_run():
    """A change of the planned points would change the trials, and so the scores, of the default run."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    config = pipeline_config({key: value for key, value in params.items() if key != "task_name"})
    found = {
        name: [planned_points(config.sweep, task, arm) for arm in ("encoder", "random_weights")]
        for name, task in config.tasks.items()
    }
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    assert digest == "f7a24f0faa8e87ee36f10dd7640d270dae0c206448d0dffa95f329ba2d4cca09"
