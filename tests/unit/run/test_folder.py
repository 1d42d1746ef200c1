"""The folder of a run, and what a kill left there."""

from __future__ import annotations

import pytest

from bertline.run.folder import held


@pytest.mark.parametrize("name", ["config.yaml", "status.json"])
def test_a_file_that_a_killed_process_was_writing_is_removed_at_the_next_start(tmp_path, name):
    (tmp_path / name).touch()
    (tmp_path / f".{name}.0a1b2c3d").touch()
    (tmp_path / f".{name}.other").touch()
    with held(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {"lock", name, f".{name}.other"}
