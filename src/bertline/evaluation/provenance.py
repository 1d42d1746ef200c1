"""First line of the report: when, from what and on what its encoder and scores were made.

The facts are read from `provenance.json`, which the workers of `pretrain` and of each sweep write next to their result.
Those artifacts contain measured times, so they differ between runs anyway. The report writes no date or commit of its
own: the same artifacts give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.evaluation.formatting import escape, listing
from bertline.foundation.files import read_json
from bertline.foundation.formats import duration

PROVENANCE_NAME = "provenance.json"
"""Name of the file in the artifacts of `pretrain` and of each sweep."""
_SHORT = 12
_SEEDS = {"examples": "examples", "pretrain": "pretraining", "sweep": "sweeps"}
_NAMED = ("python", "torch", "pytorch-lightning", "tokenizers", "numpy", "optuna")
"""Versions that the line names; provenance.json has all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Where the result of one stage comes from; what is not known is empty."""

    stage: str
    """Name of the stage in DVC, such as `sweep@docs_library`."""
    ended: str
    """When the work ended, as `2026-11-23 18:20 UTC`."""
    commit: str
    fingerprint: str
    machine: str
    """Processor or GPUs; no host name."""
    versions: Mapping[str, str]
    mlflow_run: str = ""


def read_provenance(folder: Path) -> Provenance | None:
    """Read the provenance of an artifact; None if it was written by an earlier version or taken from a checkpoint."""
    path = folder / PROVENANCE_NAME
    return Provenance(**read_json(path)) if path.exists() else None


def provenance_line(found: Sequence[Provenance], params: Mapping[str, Any], train_time_s: float | None) -> str:
    """Return the line as HTML, a list of named facts; facts that are not known are left out.

    Args:
        found: Provenance of pretraining, if there was one, then of each sweep.
        params: The configuration.
        train_time_s: Seconds of pretraining; None if nothing was pretrained.
    """
    seeds = [f"{title} {params[name]['seed']}" for name, title in _SEEDS.items() if "seed" in params.get(name, {})]
    facts = {
        "finished": max((one.ended for one in found), default=""),
        "commit": _by_stage(found, {one.stage: one.commit[:_SHORT] + _changes(one.commit) for one in found}),
        "preset": str(params.get("evaluate", {}).get("preset", "")),
        "seeds": ", ".join(seeds),
        "machine": _by_stage(found, {one.stage: one.machine for one in found}),
        "versions": _versions(found),
        "fingerprint": f"{found[0].stage} {found[0].fingerprint}" if found else "",
        "MLflow run": f"{found[0].stage} {found[0].mlflow_run}" if found and found[0].mlflow_run else "",
        "training time": "" if train_time_s is None else duration(train_time_s),
    }
    items = (f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in facts.items() if fact)
    return f'<dl class="provenance">{"".join(items)}</dl>'


def _changes(commit: str) -> str:
    return " with changes" if commit.endswith("+changes") else ""


def _versions(found: Sequence[Provenance]) -> str:
    """Return each version once, or with the stages that had it; stages record only what they compute with."""
    said = (_by_stage(found, {one.stage: one.versions.get(name, "") for one in found}) for name in _NAMED)
    return ", ".join(f"{name} {version}" for name, version in zip(_NAMED, said, strict=True) if version)


def _by_stage(found: Sequence[Provenance], facts: Mapping[str, str]) -> str:
    """Return a fact once if all stages agree, else with the stages that it belongs to."""
    stages_of: dict[str, list[str]] = {}
    for one in found:
        if facts[one.stage]:
            stages_of.setdefault(facts[one.stage], []).append(one.stage)
    if len(stages_of) < 2:
        return "".join(stages_of)
    return "; ".join(f"{fact} ({listing(stages)})" for fact, stages in stages_of.items())
