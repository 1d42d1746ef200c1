"""The data sets of GLUE: their known file layouts below a common folder, and their metrics.

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
    """A known layout of a data set's files."""

    folders: tuple[str, ...]
    """Names of folders below the folder of all sets; the first that has the files is used."""
    files: tuple[str, ...]
    """Files that must exist."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the task's `source` for this layout."""
    note: str = ""
    """Note for readers of the score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GlueSet:
    """A data set of GLUE."""

    name: str
    """Name of the task, as in conf/task."""
    title: str
    scores: tuple[Score, ...]
    """Test splits and metrics by which GLUE scores the set; the average uses their mean."""
    layouts: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class FoundSet:
    """A data set that was found."""

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
"""The nine data sets, those with the fewest rows first. The diagnostic set AX is left out, as it has no labels."""


def found_sets(data: Path, wanted: Sequence[str] | None) -> tuple[list[FoundSet], list[str]]:
    """Find the data sets in a folder.

    Args:
        data: Folder of the GLUE download, or of some of its sets.
        wanted: Names of some sets; None takes all that are found.

    Returns:
        The sets that were found, smallest first, and the titles of all sets that were not.

    Raises:
        ConfigError: The folder or a wanted set is missing, no set was found, or a name is unknown.
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
    """Return a task's composed configuration, changed to read the set where it was found.

    All sets use the recipe of the sweep: a task's own space, number of trials and training sizes are removed.
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
