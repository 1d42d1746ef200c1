"""The objectives: a new one is a file and a line, here or as the entry point of a package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from bertline.foundation.plugins import with_plugins
from bertline.foundation.validation import validate
from bertline.pretraining.objectives.base import Mlm, Objective
from bertline.pretraining.objectives.contrastive import Contrastive
from bertline.pretraining.objectives.distilled import Distilled
from bertline.pretraining.objectives.replaced_token import ReplacedToken
from bertline.pretraining.objectives.sentence_pairs import MlmNsp, MlmNspShared, MlmSop

_OWN: dict[str, type[Objective]] = {
    "mlm": Mlm,
    "mlm_nsp": MlmNsp,
    "mlm_nsp_shared": MlmNspShared,
    "mlm_sop": MlmSop,
    "contrastive": Contrastive,
    "replaced_token": ReplacedToken,
    "distilled": Distilled,
}
if TYPE_CHECKING:
    ObjectiveConfig: TypeAlias = Objective
else:
    ObjectiveConfig = Union[tuple(with_plugins("bertline.objectives", _OWN).values())]  # noqa: UP007


def objective_from(section: Mapping[str, Any]) -> Objective:
    """Return an objective from its section as plain data, such as that in the manifest of a pretrained encoder."""
    return validate(ObjectiveConfig, section, where="objective")
