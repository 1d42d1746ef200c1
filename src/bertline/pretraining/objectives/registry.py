"""The objectives: a new one is a file of `pretraining/objectives` and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertline.foundation.validation import validate
from bertline.pretraining.objectives.base import Mlm, Objective
from bertline.pretraining.objectives.contrastive import Contrastive
from bertline.pretraining.objectives.distilled import Distilled
from bertline.pretraining.objectives.replaced_token import ReplacedToken
from bertline.pretraining.objectives.sentence_pairs import MlmNsp, MlmNspShared, MlmSop

ObjectiveConfig = Mlm | MlmNsp | MlmNspShared | MlmSop | Contrastive | ReplacedToken | Distilled


def objective_from(section: Mapping[str, Any]) -> Objective:
    """Return an objective from its section as plain data, such as that in the manifest of a pretrained encoder."""
    objective: Objective = validate(ObjectiveConfig, section, where="objective")  # type: ignore[arg-type]
    return objective
