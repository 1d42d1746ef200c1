"""The sets of GLUE: where each lies in a folder of them, in which of its known layouts, and what it is scored by.

References: Wang et al., arXiv 1804.07461, section 3; for WNLI, Devlin et al., arXiv 1810.04805, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ConfigError

Score = tuple[str, str]
"""A test split and a metric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """One of the ways in which a set's files are found."""

    folders: tuple[str, ...]
    """Names below the folder of all sets, the first that has the files."""
    files: tuple[str, ...]
    """What must be there."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """What this layout changes in the task's `source`."""
    note: str = ""
    """What a reader of the score should know."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GlueSet:
    """One set."""

    name: str
    """Of the task, as in conf/task."""
    title: str
    scores: tuple[Score, ...]
    """What GLUE scores it by; the average takes their mean."""
    layouts: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class FoundSet:
    """A set that is there."""

    glue_set: GlueSet
    layout: Layout
    path: Path


def _accuracy(name: str, title: str, *layouts: Layout) -> GlueSet:
    return GlueSet(name=name, title=title, scores=(("test", "accuracy"),), layouts=layouts)


def _plain(*folders: str) -> Layout:
    return Layout(folders=folders, files=("train.tsv", "dev.tsv"))


_COLA_OWN = Layout(
    folders=("CoLA", "CoLA/raw", "cola_public/raw"),
    files=("in_domain_train.tsv", "in_domain_dev.tsv", "out_of_domain_dev.tsv"),
    source={
        "train_file": "in_domain_train.tsv",
        "test_file": "in_domain_dev.tsv",
        "extra_tests": {"out_of_domain": "out_of_domain_dev.tsv"},
    },
    note="scored on in_domain_dev of the authors' release",
)
_MRPC_OWN = Layout(
    folders=("MRPC", "mrpc"),
    files=("train.tsv", "dev.tsv", "msr_paraphrase_test.txt"),
    note="scored on the test of the original release",
)
_MRPC_GLUE = Layout(
    folders=("MRPC", "mrpc"),
    files=("train.tsv", "dev.tsv"),
    source={"dev_file": None, "test_file": "dev.tsv"},
)
_STSB_OWN = Layout(
    folders=("STS-B", "stsbenchmark", "stsb"),
    files=("sts-train.csv", "sts-dev.csv", "sts-test.csv"),
    note="scored on the test of the original release",
)
_STSB_GLUE = Layout(
    folders=("STS-B", "stsb"),
    files=("train.tsv", "dev.tsv"),
    source={
        "train_file": "train.tsv",
        "dev_file": None,
        "test_file": "dev.tsv",
        "header": True,
        "text_column": "sentence1",
        "text_pair_column": "sentence2",
        "label_column": "score",
        "extra_fields": "error",
    },
)
_QNLI_SHARE = Layout(
    folders=("QNLI_share", "QNLI"),
    files=("dev_share.tsv",),
    source={"train_file": "dev_share.tsv", "dev_file": None, "test_file": None},
    note="only a share of dev is there: train, dev and test are cut from it, so the score compares with no other",
)

GLUE = (
    _accuracy("wnli", "WNLI", _plain("WNLI", "wnli")),
    _accuracy("rte", "RTE", _plain("RTE", "rte")),
    GlueSet(
        name="mrpc",
        title="MRPC",
        scores=(("test", "f1"), ("test", "accuracy")),
        layouts=(_MRPC_OWN, _MRPC_GLUE),
    ),
    GlueSet(
        name="stsb",
        title="STS-B",
        scores=(("test", "pearson"), ("test", "spearman")),
        layouts=(_STSB_OWN, _STSB_GLUE),
    ),
    GlueSet(
        name="cola",
        title="CoLA",
        scores=(("test", "matthews"),),
        layouts=(_plain("CoLA", "cola", "CoLA/glue"), _COLA_OWN),
    ),
    _accuracy("sst2", "SST-2", _plain("SST-2", "SST2", "sst2")),
    _accuracy("qnli", "QNLI", _plain("QNLI", "QNLIv2", "qnli"), _QNLI_SHARE),
    GlueSet(
        name="qqp",
        title="QQP",
        scores=(("test", "f1"), ("test", "accuracy")),
        layouts=(_plain("QQP", "qqp"),),
    ),
    GlueSet(
        name="mnli",
        title="MNLI",
        scores=(("test", "accuracy"), ("test_mismatched", "accuracy")),
        layouts=(Layout(folders=("MNLI", "mnli"), files=("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv")),),
    ),
)
"""The nine sets, those with the fewest rows first. The diagnostic set AX has no labels."""


def found_sets(data: Path, wanted: Sequence[str] | None) -> tuple[list[FoundSet], list[str]]:
    """The sets that lie in a folder.

    Args:
        data: The folder of the GLUE download, or of some of its sets.
        wanted: Names of some sets; None takes every one that is there.

    Returns:
        What was found, smallest first, and the titles of the sets that were not.

    Raises:
        ConfigError: No set is there, a wanted one is not, or a name is none.
    """
    names = [glue_set.name for glue_set in GLUE]
    for name in wanted or ():
        if name not in names:
            raise ConfigError(f"sets names {name!r}; GLUE has {', '.join(names)}.")
    if not data.is_dir():
        raise ConfigError(f"data is {data}, and no folder is there. Give the folder that has SST-2, CoLA, ... in it.")
    found = [place for glue_set in GLUE if (place := _place_of(glue_set, data)) is not None]
    there = {place.glue_set.name for place in found}
    absent = [glue_set.title for glue_set in GLUE if glue_set.name not in there]
    lacking = [name for name in wanted or () if name not in there]
    if lacking or not found:
        named = lacking or names
        known = "; ".join(_known_places(glue_set) for glue_set in GLUE if glue_set.name in named)
        raise ConfigError(f"{data} does not have {', '.join(named)}. Looked for: {known}.")
    return [place for place in found if wanted is None or place.glue_set.name in wanted], absent


def task_of(found: FoundSet, task: Mapping[str, Any]) -> dict[str, Any]:
    """A task's composed configuration, made to read the set where it was found.

    The recipe is the sweep's for all sets: what a task varies by itself is left out.
    """
    source = {**task["source"], **found.layout.source, "path": str(found.path)}
    return {**task, "source": source, "space": {}, "num_trials": None, "label_efficiency_rows": []}


def _place_of(glue_set: GlueSet, data: Path) -> FoundSet | None:
    for layout in glue_set.layouts:
        for folder in layout.folders:
            if all((data / folder / name).is_file() for name in layout.files):
                return FoundSet(glue_set, layout, (data / folder).resolve())
    return None


def _known_places(glue_set: GlueSet) -> str:
    return " or ".join(f"{layout.folders[0]}/{{{','.join(layout.files)}}}" for layout in glue_set.layouts)
