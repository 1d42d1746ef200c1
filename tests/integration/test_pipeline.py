"""The whole pipeline, run as people run it: `dvc repro`, `dvc exp run -S`, by hand, changed."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import yaml
from datasets import Dataset, DatasetDict

from smoke import Run, succeeded

PYTHON = sys.executable
SETTINGS = Path(__file__).resolve().parents[2] / "docs/howto/settings.md"


def stale(pipeline: Path, run: Run) -> set[str]:
    """Stages that a `dvc repro` would run again, once `configure` and `identity` have run."""
    succeeded(run(pipeline, "dvc", "repro", "--single-item", "configure", "identity"))
    status = run(pipeline, "dvc", "status", "--json")
    return set(json.loads(status.stdout)) - {"identity"}  # which is said to be "always changed"


def stages_run(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Names of the stages that a `dvc repro` ran."""
    return re.findall(r"Running stage '(.*)'", done.stdout)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new, 1))


def test_a_second_repro_runs_nothing(pipeline: Path, run: Run) -> None:
    run(pipeline, "dvc", "repro")
    again = succeeded(run(pipeline, "dvc", "repro"))
    assert stages_run(again) == ["identity"]


def test_the_learning_rate_re_runs_from_pretrain(pipeline: Path, run: Run) -> None:
    replace(pipeline / "conf/experiment/smoke.yaml", "lr: 3e-3", "lr: 2e-3")
    assert stale(pipeline, run) == {"pretrain"}


def test_runtime_a_comment_and_a_docstring_re_run_nothing_but_configure(pipeline: Path, run: Run) -> None:
    replace(pipeline / "conf/runtime/default.yaml", "num_threads: null", "num_threads: 1")
    replace(pipeline / "src/bertline/modeling/bert.py", "from __future__", "# a remark\nfrom __future__")
    replace(pipeline / "src/bertline/examples/masking.py", '"""', '"""In other words: ')
    replace(pipeline / "conf/optimizer/adamw.yaml", "# AdamW", "# Once more: AdamW")
    assert stale(pipeline, run) == set()


def test_a_changed_formula_re_runs_its_stages_and_accept_keeps_their_results(pipeline: Path, run: Run) -> None:
    source = pipeline / "src/bertline/pretraining/run.py"
    source.write_text(source.read_text() + "\n_UNUSED = 1\n")
    assert stale(pipeline, run) == {"pretrain"}
    succeeded(run(pipeline, "dvc", "commit", "--force", "pretrain"))
    assert stale(pipeline, run) == set()


def test_a_new_task_re_runs_neither_corpus_nor_pretrain(pipeline: Path, run: Run) -> None:
    (pipeline / "data/tasks/mine").mkdir(parents=True)
    rows = [f"{'good' if i % 2 else 'bad'} text number {i},{'pos' if i % 2 else 'neg'}" for i in range(60)]
    (pipeline / "data/tasks/mine/train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    table = (pipeline / "conf/task/table.yaml").read_text()
    table = table.replace("path: ???", "path: data/tasks/mine").replace("train_file: null", "train_file: train.csv")
    table = table.replace("max_length: 128", "max_length: 32")
    (pipeline / "conf/task/mine.yaml").write_text(table)
    replace(pipeline / "conf/config.yaml", "  - sweep: default", "  - task@tasks.mine: mine\n  - sweep: default")
    succeeded(run(pipeline, "python", "-m", "bertline", "configure"))
    assert stale(pipeline, run) == {"task_data@mine", "encoders", "sweep@mine", "evaluate", "export"}
    succeeded(run(pipeline, "dvc", "repro", "task_data@mine"))
    assert json.loads((pipeline / "artifacts/tasks/mine/manifest.json").read_text())["labels"] == ["neg", "pos"]


def test_a_task_that_dvc_has_not_read_stops_configure(pipeline: Path, run: Run) -> None:
    registered = "  - task@tasks.again: docs_match\n  - sweep: default"
    replace(pipeline / "conf/config.yaml", "  - sweep: default", registered)
    stopped = run(pipeline, "dvc", "repro")
    assert stopped.returncode != 0
    assert "params.yaml has the tasks" in stopped.stderr and "Run `bertline configure`" in stopped.stderr


def test_a_stage_whose_code_was_edited_since_dvc_looked_is_refused(pipeline: Path, run: Run) -> None:
    source = pipeline / "src/bertline/evaluation/build.py"
    source.write_text(source.read_text() + "\n_UNUSED = 1\n")
    stopped = run(pipeline, "dvc", "repro", "--single-item", "--force", "evaluate")
    assert stopped.returncode != 0
    assert "artifacts/identity/evaluate.json" in stopped.stderr and "code.bertline.evaluation.build" in stopped.stderr


def test_what_an_experiment_sets_stays_until_a_person_decides(pipeline: Path, run: Run) -> None:
    (documented,) = re.findall(r"^dvc exp run .*", SETTINGS.read_text(), flags=re.MULTILINE)
    assert 'evaluate.title="another title"' in documented
    succeeded(run(pipeline, "bash", "-c", documented))
    assert "another title" in (pipeline / "artifacts/evaluate/report.html").read_text()

    def title() -> str:
        return yaml.safe_load((pipeline / "params.yaml").read_text())["evaluate"]["title"]

    assert stages_run(run(pipeline, "dvc", "repro")) == ["identity"]
    assert title() == "another title"

    replace(pipeline / "conf/optimizer/adamw.yaml", "# AdamW", "# Once more: AdamW")
    stopped = run(pipeline, "dvc", "repro")
    assert stopped.returncode != 0 and title() == "another title"
    assert {"evaluate.title", "--keep", "--drop"} <= set(re.findall(r"evaluate\.title|--\w+", stopped.stderr))

    succeeded(run(pipeline, PYTHON, "-m", "bertline", "configure", "--keep"))
    assert stale(pipeline, run) == set() and title() == "another title"


def test_a_hand_run_writes_under_runs_and_leaves_artifacts_alone(pipeline: Path, run: Run) -> None:
    weights = (pipeline / "artifacts/pretrain/model.safetensors").read_bytes()
    before = set((pipeline / "runs/pretrain").glob("[!.]*"))
    succeeded(run(pipeline, PYTHON, "pipelines/pretrain.py", "pretrain.max_steps=3"))
    (new,) = set((pipeline / "runs/pretrain").glob("[!.]*")) - before
    assert (new / "result/model.safetensors").exists()
    assert json.loads((new / "metrics.json").read_text())["steps"] == 3
    assert (pipeline / "artifacts/pretrain/model.safetensors").read_bytes() == weights


def test_changed_user_text_re_runs_the_corpus(pipeline: Path, run: Run, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(30):
        sentences = " ".join(f"This is sentence {i} of the long document number {number}." for i in range(8))
        (texts / f"{number}.txt").write_text(sentences)
    chosen = ("corpus=text", f"corpus.path={texts}", "corpus.validation_fraction=0.2")
    succeeded(run(pipeline, PYTHON, "-m", "bertline", "configure", *chosen, "--save"))
    succeeded(run(pipeline, "dvc", "repro", "corpus"))
    assert "corpus" not in stale(pipeline, run)
    (texts / "0.txt").write_text("Quite another text stands here now. " * 10)
    assert "corpus" in stale(pipeline, run)


def test_several_values_give_a_run_each_which_mlflow_shows_beside_each_other(pipeline: Path, run: Run) -> None:
    command = [PYTHON, "pipelines/pretrain.py", "-m", "optimizer.lr=1e-3,2e-3", "pretrain.max_steps=2"]
    succeeded(run(pipeline, *command))
    assert not (pipeline / "multirun").exists()
    with sqlite3.connect(pipeline / "runs/mlflow.db") as database:
        rows = database.execute(
            "select runs.experiment_id, runs.status, params.value from runs join params using (run_uuid) "
            "where runs.name like 'pretrain%' and params.key = 'optimizer.lr' and params.value in ('0.001', '0.002')"
        ).fetchall()
    assert len({experiment for experiment, _, _ in rows}) == 1
    assert sorted((status, value) for _, status, value in rows) == [("FINISHED", "0.001"), ("FINISHED", "0.002")]
    again = run(pipeline, *command)
    assert len(re.findall("is finished already; taking its result", again.stdout)) == 2, again.stderr


def test_the_whole_pipeline_runs_from_a_folder_of_datasets(pipeline: Path, run: Run) -> None:
    topics = ("river", "engine", "garden", "music")
    rows = [
        {"text": " ".join(f"The {topics[n % 4]} of place {n} has part {i}." for i in range(8)), "topic": topics[n % 4]}
        for n in range(240)
    ]
    places = {"train": (0, 160), "validation": (160, 200), "test": (200, 240)}
    splits = {name: Dataset.from_list(rows[first:last]) for name, (first, last) in places.items()}
    DatasetDict(splits).save_to_disk(str(pipeline / "data/topics"))
    task = (pipeline / "conf/task/hub.yaml").read_text().replace("name: ???", "name: data/topics")
    task = (
        task.replace("revision: ???", "revision: null").replace("label_column: label", "label_column: topic")
        + "max_length: 64\n"
    )
    (pipeline / "conf/task/topics.yaml").write_text(task)
    replace(pipeline / "conf/config.yaml", "  - sweep: default", "  - task@tasks.topics: topics\n  - sweep: default")
    chosen = ("corpus=hub", "corpus.name=data/topics", "corpus.revision=null", "corpus.validation_fraction=0.2")
    bounds_off = [f"examples.bounds.max_{name}=null" for name in ("duplicate_share", "surface_accuracy", "rare_share")]
    succeeded(
        run(pipeline, PYTHON, "-m", "bertline", "configure", *chosen, *bounds_off, "tokenizer.vocab_size=200", "--save")
    )
    succeeded(run(pipeline, "dvc", "repro"))
    corpus = json.loads((pipeline / "artifacts/corpus/manifest.json").read_text())
    task_data = json.loads((pipeline / "artifacts/tasks/topics/manifest.json").read_text())
    scores = json.loads((pipeline / "artifacts/metrics/evaluate.json").read_text())
    assert corpus["counts"]["train"]["documents"] + corpus["counts"]["validation"]["documents"] == 160
    assert task_data["labels"] == sorted(topics) and "topics/encoder/accuracy_mean" in scores
    assert (pipeline / "artifacts/export/topics/model.safetensors").exists()
