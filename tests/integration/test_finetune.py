"""A checkpoint fine-tuned as it is: through DVC, and by one command without any YAML."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

import smoke
import warm_python
from smoke import Run, succeeded
from tiny import WORDS, write_encoder

PYTHON = sys.executable
QUICK = (
    "sweep.num_seeds=2", "sweep.fine_tuning.num_epochs=1", "sweep.fine_tuning.learning_rate=1e-3",
    "export.measure_latency=false", "runtime.device=cpu", "runtime.num_workers=0", "runtime.num_threads=1",
    "runtime.sweep_workers=1", "tracking.system_metrics=false",
)  # fmt: skip


def text(number: int) -> str:
    """A text whose first word tells the label."""
    return f"{WORDS[number % 2]} {WORDS[2 + number % 19]} {WORDS[21 + number % 17]}"


def rows() -> str:
    return "text,label\n" + "".join(f"{text(i)},{('even', 'odd')[i % 2]}\n" for i in range(90))


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone with two tasks, one of which has an encoder of its own, after `dvc repro`. Read only."""
    base = tmp_path_factory.mktemp("finetune")
    for name, seed in (("first", 7), ("second", 8), ("own", 9)):
        write_encoder(base / name, seed=seed, max_position_embeddings=32)
    (base / "rows.csv").write_text(rows())
    folder = smoke.clone(base / "clone")
    table = (folder / "conf/task/table.yaml").read_text().replace("max_length: 128", "max_length: 24")
    table = table.replace("path: ???", f"path: {base / 'rows.csv'}")
    (folder / "conf/task/mine.yaml").write_text(table)
    (folder / "conf/task/other.yaml").write_text(f"{table}start_from: {base / 'own'}\n")
    config = [line for line in (folder / "conf/config.yaml").read_text().splitlines() if "- task@tasks." not in line]
    place = config.index("  - sweep: default")
    config[place:place] = ["  - task@tasks.mine: mine", "  - task@tasks.other: other"]
    (folder / "conf/config.yaml").write_text("\n".join(config) + "\n")
    (folder / "conf/local/default.yaml").unlink()
    (folder / "params.yaml").unlink()
    # Dev chooses, not folds: on these n-grams would have to be better than encoders by more than the noise.
    chosen = ["experiment=finetune", f"pretrain.start_from={base / 'first'}", "sweep.fold_rows=0", *QUICK]
    smoke.run(["python", "-m", "bertline", "configure", *chosen, "--save"], folder, programs=warm_python.programs())
    smoke.run(["dvc", "repro"], folder, programs=warm_python.programs())
    return folder


def manifest(folder: Path, name: str) -> dict:
    return json.loads((folder / "artifacts" / name / "manifest.json").read_text())


def test_the_stages_of_pretraining_do_nothing_and_say_why(finetuned: Path) -> None:
    for name in ("corpus", "tokenizer", "examples"):
        assert [path.name for path in (finetuned / "artifacts" / name).iterdir()] == ["manifest.json"]
        assert "fine-tuned as it is" in manifest(finetuned, name)["reason"]
        assert json.loads((finetuned / f"artifacts/metrics/{name}.json").read_text()) == {}
    assert "tokenizer: not used" in (finetuned / "artifacts/pages/data.html").read_text()
    assert manifest(finetuned, "pretrain")["taken_from"] == "the local checkpoint first"
    assert not list((finetuned / "runs").glob("pretrain/*/checkpoints"))


def test_the_report_and_the_cards_leave_pretraining_out(finetuned: Path) -> None:
    report = (finetuned / "artifacts/evaluate/report.html").read_text()
    assert "The local checkpoint first, an encoder with " in report
    assert "Task: mine" in report and "Task: other" in report
    for words in ("Learning to read", "What it read", "MLM loss"):
        assert words not in report
    assert not re.search(r"\bnan\b", report)
    card = (finetuned / "artifacts/export/mine-encoder/README.md").read_text()
    assert "Fine-tuned from the local checkpoint first" in card
    assert "next sentence" not in card
    figures = json.loads((finetuned / "artifacts/metrics/evaluate.json").read_text())
    assert "mine/encoder/accuracy_mean" in figures
    assert not any(key.startswith(("val/", "unigram")) or "random_weights" in key for key in figures)


def test_the_models_are_exported_and_registered_and_the_checkpoint_is_not(finetuned: Path) -> None:
    exported = {path.name for path in (finetuned / "artifacts/export").iterdir() if path.is_dir()}
    # An epoch is too short for the encoders; n-grams are what the tasks' names stand for.
    assert exported == {"mine", "mine-encoder", "other", "other-encoder"}
    assert (finetuned / "artifacts/export/mine/linear.json").exists()
    assert (finetuned / "artifacts/export/mine-encoder/onnx/model.onnx").exists()
    import sqlite3

    with sqlite3.connect(finetuned / "runs/mlflow.db") as database:
        names = {row[0] for row in database.execute("select name from registered_models")}
    assert names == {"bertline-mine", "bertline-other"}


def test_another_checkpoint_re_runs_only_the_sweeps_that_start_from_it(finetuned: Path, run: Run) -> None:
    second = finetuned.parent / "second"
    succeeded(run(finetuned, PYTHON, "-m", "bertline", "configure", f"pretrain.start_from={second}", "--save"))
    succeeded(run(finetuned, "dvc", "repro", "encoders"))
    status = json.loads(run(finetuned, "dvc", "status", "--json").stdout)
    assert "sweep@mine" in status
    assert "sweep@other" not in status


def test_one_command_needs_no_yaml_and_resumes(finetuned: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(rows())
    before = {path: path.stat().st_mtime for path in (finetuned / "artifacts").rglob("*")}
    start = f"start_from={finetuned.parent / 'own'}"
    command = [PYTHON, "-m", "bertline", "finetune", f"data={tmp_path / 'rows.csv'}", start, "max_length=24", *QUICK]
    command += ["sweep.methods=[contrastive]", "sweep.fold_rows=0"]
    first, again = run(finetuned, *command), run(finetuned, *command)
    assert first.returncode == 0, first.stdout + first.stderr
    said = json.loads(first.stdout.splitlines()[-1])
    assert said["metric"] == "accuracy" and said["seeds"] in (1, 2)  # of frozen vectors one, as nothing is random
    assert said["winner"].endswith("ngrams") and said["test"] == said["baselines"][said["winner"]]
    assert (Path(said["export"]) / "linear.json").exists() and (Path(said["encoder"]) / "classifier").is_dir()
    assert Path(said["report"]).exists()
    assert "is finished already" in again.stdout
    assert json.loads(again.stdout.splitlines()[-1]) | {"minutes": 0} == said | {"minutes": 0}
    assert before == {path: path.stat().st_mtime for path in (finetuned / "artifacts").rglob("*")}
    assert [*yaml.safe_load((finetuned / "params.yaml").read_text())["tasks"]] == ["mine", "other"]


FIT = """
import json
import bertline

if __name__ == "__main__":
    model = bertline.fit(**json.load(open("arguments.json")))
    shown = {"labels": model.labels, "calibration": dict(model.task.calibration), "file": model.name}
    print(model.predict([f"{model.result['metric']}"])[0].label in model.labels)
    print(json.dumps([shown, model.result]))
"""


def test_in_python_it_does_what_the_command_does(finetuned: Path, run: Run, tmp_path: Path) -> None:
    table = [{"body": text(i), "even": i % 2, "who": i // 3} for i in range(90)]
    quick = {key: value if value == "cpu" else json.loads(value) for key, value in (each.split("=") for each in QUICK)}
    settings = {**quick, "max_length": 24, "threshold_metric": "f1", "export.onnx": False, "export.int8": False}
    start = str(finetuned.parent / "own")
    asked = {"train": table, "text": "body", "label": "even", "group": "who", "start_from": start, **settings}
    (tmp_path / "arguments.json").write_text(json.dumps(asked))
    (tmp_path / "fit.py").write_text(FIT)
    fitted = succeeded(run(tmp_path, PYTHON, "fit.py"))
    predicted, shown = fitted.stdout.splitlines()[-2:]
    model, result = json.loads(shown)
    assert predicted == "True" and model["labels"] == ["0", "1"] and "threshold" in model["calibration"]
    (file,) = tmp_path.glob("runs/finetune/rows-*/train.jsonl")
    arguments = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    columns = ["name=even", "text_column=body", "label_column=even", "group_column=who"]
    given = [f"train={file}", f"start_from={start}", *columns, *arguments]
    again = run(tmp_path, PYTHON, "-m", "bertline", "finetune", *given)
    assert "is finished already" in again.stdout, again.stdout + again.stderr  # configuration and rows are the same
    assert json.loads(again.stdout.splitlines()[-1]) | {"minutes": 0} == result | {"minutes": 0}


def test_of_several_encoders_the_best_on_dev_is_exported_and_each_has_a_score(finetuned, run, tmp_path) -> None:
    (tmp_path / "rows.csv").write_text(rows())
    first, own = (str(finetuned.parent / name) for name in ("first", "own"))
    given = [f"data={tmp_path / 'rows.csv'}", "name=several", "max_length=24", "sweep.exported=best", *QUICK]
    command = [PYTHON, "-m", "bertline", "finetune", *given]
    twice = run(finetuned, *command, f"start_from=[{own},{finetuned.parent}/first/../own]")
    assert twice.returncode == 1 and "start_from: " in twice.stderr and "is named twice" in twice.stderr
    done = succeeded(run(finetuned, *command, f"start_from=[{first},{own}]"))
    said = json.loads(done.stdout.splitlines()[-1])
    result = json.loads(next((finetuned / "runs").glob("sweep@several/*/result/result.json")).read_text())
    assert result["arms"]["encoder"]["dev_mean"] >= result["arms"]["encoder_2"]["dev_mean"]
    assert said["encoders"] == {arm["start"]: arm["test_mean"] for arm in result["arms"].values()}
    assert said["encoders"].keys() == {first, own} and said["test"] == said["encoders"][result["start"]]
    task = json.loads((Path(said["export"]) / "task.json").read_text())["task"]
    assert Path(task["start_from"]).name == Path(result["start"]).name
    assert "Which encoder?" in Path(said["report"]).read_text()
