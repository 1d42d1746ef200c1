"""The objectives by `kind`; each one is imported only when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertline.foundation.validation import validate
from bertline.pretraining.objectives.base import Objective, ShownTable
from bertline.pretraining.objectives.config import MlmNspObjectiveConfig, ObjectiveConfig


def build_objective(config: ObjectiveConfig) -> Objective:
    """Build the objective that a configuration chooses."""
    from bertline.pretraining.objectives.mlm_nsp import MlmNsp

    return MlmNsp(config)


def objective_from(section: Mapping[str, Any]) -> Objective:
    """Build an objective from its section as plain data, such as that in the manifest of a pretrained encoder."""
    return build_objective(validate(MlmNspObjectiveConfig, section, where="objective"))


def shown_tables() -> tuple[ShownTable, ...]:
    """Return the tables that the report of any objective may have."""
    from bertline.pretraining.objectives.mlm_nsp import SHOWING

    return SHOWING.tables
