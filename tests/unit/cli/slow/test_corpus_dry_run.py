"""`bertline corpus-dry-run`."""

from __future__ import annotations

from pathlib import Path

from fork_server import run_bertline
from projects import copy_project


def test_a_dry_run_prints_drops_with_samples_and_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for number in range(8):
        words = " ".join(f"word{number}x{place}" for place in range(60))
        (tmp_path / "text" / f"{number}.txt").write_text(f"A text of {words}.")
    (tmp_path / "text" / "8.txt").write_text((tmp_path / "text" / "3.txt").read_text().replace("A text of", "Text of"))
    (tmp_path / "text" / "9.txt").write_text("Short.")
    (tmp_path / "text" / "notes.md").write_text("Notes.")
    (tmp_path / "temporary").mkdir()
    copy_project(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    keys = ("corpus=text", "corpus.path=text", "corpus.near_duplicates.threshold=0.7", "runtime.num_workers=1")
    environment = {"TMPDIR": str(tmp_path / "temporary")}
    found = run_bertline(tmp_path, "corpus-dry-run", *keys, environment=environment)

    assert found.returncode == 0, found.stderr
    assert "documents/near_duplicate: 1" in found.stdout
    assert "8.txt (98% equal to 3.txt): Text of word3x0" in found.stdout
    assert "(1 near duplicate, 1 too short)" in found.stdout
    assert "1 file (1 other suffix: notes.md); the corpus was not kept" in found.stdout
    assert sorted(tmp_path.rglob("*")) == before
