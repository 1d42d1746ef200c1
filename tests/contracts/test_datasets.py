"""What bertline relies on in datasets."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import load_dataset


def test_a_repository_with_a_script_is_refused_so_hub_sources_must_be_parquet(tmp_path: Path) -> None:
    folder = tmp_path / "scripted"
    folder.mkdir()
    (folder / "scripted.py").write_text("raise SystemExit('code of the data ran')\n")
    with pytest.raises(RuntimeError, match="Dataset scripts are no longer supported"):
        load_dataset(str(folder / "scripted.py"), cache_dir=str(tmp_path / "cache"))
