"""Overrides of the search: what is used, what is refused, and what has fewer points than trials."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bertline.cli.overrides import refuse_unused
from bertline.config import SECTIONS, PipelineConfig, pipeline_config
from bertline.foundation.errors import ConfigError
from bertline.sweep.space import planned_points, space_of

CONF = Path(__file__).resolve().parents[3] / "conf"
OWN_TRIALS = tuple(f"tasks.docs_{name}.num_trials=4" for name in ("library", "match", "parameters", "search"))


@functools.cache
def composed(*overrides: str) -> Any:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose("config", overrides=list(overrides)))


def config_of(*overrides: str) -> PipelineConfig:
    return pipeline_config({section: composed(*overrides)[section] for section in SECTIONS})


@pytest.mark.parametrize(("override", "num_trials"), [("sweep.num_trials=3", 3), ("sweep.num_trials=1", 1)])
def test_the_number_of_trials_of_the_default_tasks_can_be_changed(override, num_trials):
    config = config_of(override)
    counts = {name: len(planned_points(config.sweep, task)) for name, task in config.tasks.items()}
    assert counts == {**dict.fromkeys(config.tasks, num_trials), "docs_match": min(num_trials, 2)}


@pytest.mark.parametrize("preset", sorted(path.stem for path in (CONF / "sweep").glob("*.yaml")))
def test_every_search_has_the_trials_of_its_preset_unless_the_space_has_fewer_points(preset):
    config = config_of(f"sweep={preset}")
    for task in config.tasks.values():
        expected = config.sweep.num_trials if space_of(config.sweep, task) else 0
        num_points = len(planned_points(config.sweep, task))
        assert num_points == expected or (
            num_points < expected and "each is tried" in config.sweep.lacking_points(task)
        )


@pytest.mark.parametrize("preset", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_no_experiment_sets_a_number_of_trials_or_a_space_that_is_not_used(preset):
    content = OmegaConf.to_container(OmegaConf.load(CONF / f"experiment/{preset}.yaml"))
    keys = [f"sweep.{key}" for key in content.get("sweep", {}) if key == "num_trials"]
    keys += [f"tasks.{name}.space.learning_rate" for name, task in content.get("tasks", {}).items() if "space" in task]
    start = ["pretrain.start_from=x"] if (content.get("pretrain") or {}).get("start_from") == "???" else []
    refuse_unused(composed(f"experiment={preset}", *start), keys) if keys else None


@pytest.mark.parametrize(
    ("overrides", "advised"),
    [
        (["sweep.space.learning_rate.high=3e-3"], "sweep.task_spaces=false"),
        (["~sweep.space.learning_rate"], "sweep.task_spaces=false"),
        (["sweep.space={learning_rate: {high: 3e-3}}"], "tasks.docs_match.space.learning_rate"),
        (["sweep.fine_tuning.num_epochs=5"], "tasks.docs_match.space.num_epochs"),
        (["+tasks.docs_match.fine_tuning.num_epochs=5"], "tasks.docs_match.space.num_epochs. Set that"),
        (["sweep=tpe_halving", "tasks.docs_match.space.learning_rate.values=[1e-3]"], "Set sweep.space.learning_rate"),
        (["sweep=glue", "sweep.num_trials=4"], "nothing is searched"),
        (["task_name=docs_library", "sweep=default", "~sweep.space.num_epochs"], "docs_library.fine_tuning.num_epochs"),
        ([*OWN_TRIALS, "sweep.num_trials=3"], "tasks.docs_search.num_trials. Set that"),
    ],
)
def test_an_override_that_is_not_used_is_an_error_that_names_the_key_to_set(overrides, advised):
    with pytest.raises(ConfigError, match="has no effect") as refused:
        refuse_unused(composed(*overrides), overrides)
    assert advised in str(refused.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["sweep.num_trials=2"],
        ["+sweep.space.weight_decay={kind: choice, values: [0.0, 0.01]}"],
        ["sweep.task_spaces=false", "sweep.space.learning_rate.high=3e-3", "~sweep.space.batch_size"],
        ["sweep=default", "~sweep.space.num_epochs", "sweep.fine_tuning.num_epochs=5"],
        ["tasks.docs_match.space.learning_rate.values=[1e-3]", "tasks.docs_match.num_trials=1"],
        ["tasks.docs_library.fine_tuning.num_epochs=2"],
    ],
)
def test_an_override_that_is_used_is_none(overrides):
    refuse_unused(composed(*overrides), overrides)


def test_a_key_that_another_preset_changes_beside_those_that_are_used_is_no_error():
    refuse_unused(composed("sweep=tpe_halving"), ["sweep.num_trials", "sweep.fine_tuning.num_epochs"], each=False)
    with pytest.raises(ConfigError, match="has no effect"):
        refuse_unused(composed(), ["sweep.space.learning_rate.high", "sweep.fine_tuning.num_epochs"], each=False)
