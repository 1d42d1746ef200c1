"""The kinds of task: a new one is a folder `kinds/NAME` and a line here."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from bertline.foundation.errors import ArtifactError
from bertline.kinds.classification.config import ClassificationTaskConfig
from bertline.kinds.fill_mask.config import FillMaskTaskConfig
from bertline.kinds.question_answering.config import QuestionAnsweringTaskConfig
from bertline.kinds.regression.config import RegressionTaskConfig
from bertline.kinds.reranking.config import RerankingTaskConfig
from bertline.kinds.retrieval.config import RetrievalTaskConfig
from bertline.kinds.sentence_labelling.config import SentenceLabellingTaskConfig
from bertline.kinds.summarisation.config import SummarisationTaskConfig
from bertline.kinds.tagging.config import TaggingTaskConfig
from bertline.kinds.token_classification.config import TokenClassificationTaskConfig

TaskConfig = (
    ClassificationTaskConfig
    | RegressionTaskConfig
    | TokenClassificationTaskConfig
    | QuestionAnsweringTaskConfig
    | RetrievalTaskConfig
    | RerankingTaskConfig
    | SummarisationTaskConfig
    | FillMaskTaskConfig
    | TaggingTaskConfig
    | SentenceLabellingTaskConfig
)

KINDS: tuple[str, ...] = tuple(config.__module__.split(".")[-2] for config in get_args(TaskConfig))
"""Names of the kinds: those of their folders, and the values of `kind` in the configuration."""

Part = Literal["data", "model", "baselines", "serving", "report"]
_CONTRACT: dict[Part, tuple[str, ...]] = {
    "data": ("built_task", "stored_rows"),
    "model": ("task_kind",),
    "baselines": ("baselines",),
    "serving": ("predictor",),
    "report": ("error_block", "about", "row_measure", "usage"),
}
"""Functions that each part has; the packages that call them document them."""


def kind_part(kind: str, part: Part) -> Any:
    """Import a part of a kind of task, `kinds/KIND/PART.py`, when it is needed.

    The part is always a literal: code fingerprints read it, and cover this part of every kind.

    Raises:
        ArtifactError: There is no such kind.
    """
    if kind not in KINDS:
        raise ArtifactError(f"there is no kind of task {kind!r}; expected one of {', '.join(KINDS)}.")
    return import_module(f"bertline.kinds.{kind}.{part}")


def check_parts(folder: Path) -> None:
    """Check that a kind has all parts, without importing them.

    Raises:
        TypeError: A part or one of its functions is missing.
    """
    for part, functions in _CONTRACT.items():
        file = folder / f"{part}.py"
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        for name in functions:
            # It may be a class, or that of another kind.
            made = rf"^(def {name}\(|{name} = |from bertline\.kinds\.\S+ import .*\b{name}\b)"
            if not re.search(made, text, re.MULTILINE):
                raise TypeError(f"the kind of task {folder.name!r} needs a function `{name}` in {file}")


# Here, when a kind is registered, not after a sweep that ends without baselines or report.
for _kind in KINDS:
    check_parts(Path(__file__).parent / _kind)
