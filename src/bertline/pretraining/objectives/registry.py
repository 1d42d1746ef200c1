"""The objectives by `kind`; each one is imported only when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from bertline.foundation.validation import validate
from bertline.pretraining.objectives.base import Objective, ShownTable
from bertline.pretraining.objectives.config import MlmNspObjectiveConfig, MlmObjectiveConfig, ObjectiveConfig


def build_objective(config: ObjectiveConfig) -> Objective:
    """Build the objective that a configuration chooses."""
    match config:
        case MlmObjectiveConfig():
            from bertline.pretraining.objectives.mlm import Mlm

            return Mlm()
        case MlmNspObjectiveConfig():
            from bertline.pretraining.objectives.mlm_nsp import MlmNsp

            return MlmNsp(config)
        case _:
            assert_never(config)


def objective_from(section: Mapping[str, Any]) -> Objective:
    """Build an objective from its section as plain data, such as that in the manifest of a pretrained encoder."""
    config: Any = validate(ObjectiveConfig, section, where="objective")  # type: ignore[arg-type]
    return build_objective(config)


def shown_tables() -> tuple[ShownTable, ...]:
    """Return the tables of all objectives: `dvc.yaml` plots each of them, whatever was pretrained."""
    from bertline.pretraining.objectives import mlm, mlm_nsp

    tables = (*mlm.SHOWING.tables, *mlm_nsp.SHOWING.tables)
    return tuple({table.name: table for table in tables}.values())
