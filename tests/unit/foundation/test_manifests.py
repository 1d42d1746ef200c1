"""Manifests refuse to be read as something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertline.foundation.errors import ArtifactError
from bertline.foundation.manifests import read_manifest, write_manifest
from bertline.foundation.metrics_log import MetricsLog, read_metrics
from bertline.foundation.seeds import generator, seed_for


def test_a_manifest_of_another_kind_or_version_is_refused(tmp_path: Path) -> None:
    write_manifest(tmp_path, kind="corpus", format_version=1, content={"documents": 3})
    assert read_manifest(tmp_path, kind="corpus", format_version=1)["documents"] == 3
    with pytest.raises(ArtifactError, match="kind is 'corpus', expected 'examples'"):
        read_manifest(tmp_path, kind="examples", format_version=1)
    with pytest.raises(ArtifactError, match="format_version is 1, this bertline reads 2"):
        read_manifest(tmp_path, kind="corpus", format_version=2)


def test_rows_after_the_checkpoint_are_dropped_on_resume(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(5):
        log.log(step, {"train/mlm_loss": 9.0 - step})
    log.keep_up_to(2)
    log.log(3, {"train/mlm_loss": 1.0})
    rows = list(read_metrics(log.path))
    assert [row.step for row in rows] == [0, 1, 2, 3]
    assert rows[-1].metrics == {"train/mlm_loss": 1.0}


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.log(1, {"a": 1})
    with log.path.open("a") as handle:
        handle.write('{"step": 2, "metr')
    assert [row.step for row in read_metrics(log.path)] == [1]


def test_seeds_are_the_same_in_every_version() -> None:
    assert seed_for(0, "mask", 3) == 16417936141678531808
    assert generator(1, "a").integers(1 << 30) == generator(1, "a").integers(1 << 30)


def test_types_and_groupings_do_not_collide() -> None:
    seeds = {seed_for(1), seed_for("1"), seed_for("ab", "c"), seed_for("a", "bc"), seed_for("abc"), seed_for(1, 1)}
    assert len(seeds) == 6
