"""What a student costs and is worth: the rows of the table, and that an ONNX file is scored as the model is."""

from __future__ import annotations

import json
import shutil

import pytest

import finished_tasks
from bertline.export.distillation import distillation, score_of_graph
from bertline.export.onnx import write_onnx
from bertline.export.views import architecture_in, load_view
from bertline.foundation.manifests import write_manifest
from bertline.tasks.stored_rows import COLLECTION, TASK_FORMAT, TASK_KIND, write_rows


def written_task(name, rows, folder):
    folder.mkdir()
    write_rows(folder, "test", rows)
    if name == "retrieval":
        write_rows(folder, COLLECTION, finished_tasks.collection())
    write_manifest(folder, kind=TASK_KIND, format_version=TASK_FORMAT, content={})
    return folder


@pytest.mark.parametrize("name", ["classification", "linear", "cosine", "crf", "question_answering", "retrieval"])
def test_a_graph_is_scored_as_its_model(name, tmp_path):
    one = finished_tasks.finish(name, tmp_path)
    folder = written_task(name, one.rows, tmp_path / "task")
    write_onnx(load_view(one.folder, architecture_in(one.folder)), tmp_path / "model.onnx")
    metric = one.kind.config.metric
    expected = one.kind.scores(one.kind.statistics(one.rows, one.predictions(), one.calibration))[metric]
    found = score_of_graph(tmp_path / "model.onnx", one.folder, folder, metric)
    assert found == pytest.approx(expected, abs=1e-4)


def test_teacher_and_students_are_measured_in_one_table(tmp_path):
    one = finished_tasks.finish("classification", tmp_path)
    sweep = tmp_path / "sweep"
    shutil.copytree(one.folder, sweep / "best")
    arms = {"encoder": {"test_mean": 0.8, "test_std": 0.01}, "without_teacher": {"test_mean": 0.7, "test_std": 0.02}}
    result = {"metric": "accuracy", "arms": arms, "comparisons": {"without_teacher": {"verdict": "better"}}}
    (sweep / "result.json").write_text(json.dumps({**result, "teacher": {"test": {"accuracy": 0.9}}}))
    found = distillation(sweep, written_task("classification", one.rows, tmp_path / "task"), one.folder)
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == ["teacher", "student", "student_alone", "student_int8"]
    assert [rows[name]["score"] for name in ("teacher", "student", "student_alone")] == [0.9, 0.8, 0.7]
    assert [rows[name]["spread"] for name in rows] == [None, 0.01, 0.02, None]
    assert rows["student_int8"]["megabytes"] < rows["student"]["megabytes"]
    ratio = rows["teacher"]["ms_32"] / rows["student"]["ms_32"]
    assert found["rows_per_s_ratio"] == pytest.approx(ratio, abs=1e-3)
    assert found["verdict"] == {"verdict": "better"}
