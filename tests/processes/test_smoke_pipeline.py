"""The whole pipeline on a tiny slice, run as people run it: what it leaves in artifacts and in MLflow."""

from __future__ import annotations

import fnmatch
import json
import re
import sqlite3
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Written only under conditions that the smoke preset may not meet: an alarm, a tagger with a CRF.
CONDITIONAL = {
    "artifacts/pretrain/health.jsonl", "artifacts/export/*/crf.safetensors",
    "artifacts/sweep/*/winner/*",
}  # fmt: skip


def test_the_line_leaves_every_artifact_and_figure(smoke_pipeline: Path) -> None:
    artifacts = smoke_pipeline / "artifacts"
    for name in ("corpus", "tokenizer", "examples", "pretrain", "tasks/docs_library", "sweep/docs_match", "evaluate",
                 "export"):  # fmt: skip
        assert json.loads((artifacts / name / "manifest.json").read_text())["format_version"] >= 1, name
    pretrain = json.loads((artifacts / "metrics/pretrain.json").read_text())
    needed = {"val/mlm_loss", "val/mlm_accuracy", "val/nsp_accuracy", "unigram_entropy", "perf/tokens_per_s"}
    assert needed <= set(pretrain)
    assert (artifacts / "evaluate/report.html").stat().st_size > 10_000
    assert (artifacts / "export/encoder/model.safetensors").exists()
    assert (artifacts / "export/docs_library/README.md").exists()


def test_every_file_of_every_artifact_is_documented(smoke_pipeline: Path) -> None:
    page = (ROOT / "docs/reference/artifacts.md").read_text()
    patterns: set[str] = set()
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        folder = part.partition("\n")[0].replace("TASK", "*")
        for cell in re.findall(r"^\| (`.*?`) \|", part, flags=re.MULTILINE):
            for name in re.findall(r"`([^`]+)`", cell):
                patterns.add(name if name.startswith("artifacts/") else f"{folder}/{name}")
    patterns = {pattern for pattern in patterns if pattern.startswith("artifacts/")}
    files = {
        path.relative_to(smoke_pipeline).as_posix()
        for path in (smoke_pipeline / "artifacts").rglob("*")
        if path.is_file()
    }
    files = {name for name in files if not name.endswith(".gitignore")}
    undocumented = {name for name in files if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)}
    unmade = {pattern for pattern in patterns if not fnmatch.filter(files, pattern)} - CONDITIONAL
    assert (undocumented, unmade) == (set(), set())


def test_mlflow_has_one_run_for_the_line_and_one_for_each_stage(smoke_pipeline: Path) -> None:
    with sqlite3.connect(smoke_pipeline / "runs/mlflow.db") as database:
        names = [row[0] for row in database.execute("select name from runs where lifecycle_stage = 'active'")]
        statuses = {row[0] for row in database.execute("select status from runs")}
    for stage in ("corpus", "tokenizer", "examples", "pretrain", "sweep@docs_library", "evaluate", "export"):
        assert sum(stage == name.partition(":")[0] for name in names) == 1, (stage, names)
    assert statuses <= {"FINISHED", "KILLED"}


def test_every_stage_has_its_manifest_and_all_its_figures_in_mlflow(smoke_pipeline: Path) -> None:
    with sqlite3.connect(smoke_pipeline / "runs/mlflow.db") as database:
        places = dict(
            database.execute(
                "select tags.value, runs.artifact_uri from tags join runs using (run_uuid) where key = 'bertline.stage'"
            ).fetchall()
        )
    for stage, place in places.items():
        names = {path.name for path in Path(place).iterdir()}
        assert {"manifest.json", f"{stage}.json"} <= names, stage
        if stage.startswith("sweep@"):
            assert {"predictions.json", "errors.json"} <= names
        if stage.startswith("task_data@"):
            assert {"train.json", "dev.json", "test.json"} <= names
    assert (Path(places["corpus"]) / "documents.json").exists()
    assert (Path(places["tokenizer"]) / "vocab.txt").exists()
    assert list(Path(places["examples"]).glob("readable-*.txt"))
