"""What a person reads when a command cannot start: file and line, or the key that was meant; never a traceback."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from fork_server import run_bertline, run_recipe
from projects import copy_project

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("fork_server")


def error_of(program: str, *arguments: str) -> str:
    """The one line of `bertline ...`, or of a recipe, that cannot start."""
    done = run_bertline(ROOT, *arguments) if program == "bertline" else run_recipe(ROOT, program, *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize("runs", ["file", "missing"])
@pytest.mark.parametrize("command", ["finetune", "predict"])
def test_a_command_writes_nothing_that_need_not_be_and_needs_no_folder_for_it(
    tmp_path: Path, command: str, runs: str
) -> None:
    if runs == "file":
        (tmp_path / "runs").write_text("")
    before = sorted(tmp_path.iterdir())
    nothing = tmp_path / "none.csv"
    arguments = {
        "finetune": [f"data={nothing}"],
        "predict": [f"model_folder={nothing}", f"input={nothing}", f"output={tmp_path}/o.csv"],
    }[command]
    done = run_bertline(tmp_path, command, *arguments)
    assert done.returncode == 1 and "none.csv" in done.stderr and "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  batch: !!python/object:os.system {}", "python/object:os.system"),
        ("  batch: !mine 3", "!mine"),
        ("\tbatch: 3", "cannot start any token"),
    ],
)
def test_a_bad_tag_in_params_yaml_names_file_and_line(tmp_path: Path, line: str, said: str) -> None:
    (copy_project(tmp_path) / "params.yaml").write_text(f"task_name: null\ntokenizer:\n{line}\n")
    recipe = str(tmp_path / "pipelines/tokenizer.py")
    done = run_recipe(tmp_path, recipe, environment={"DVC_STAGE": "tokenizer"})
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "params.yaml" in done.stderr and "line 3" in done.stderr and said in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_stage_that_dvc_runs_reads_params_yaml(tmp_path: Path) -> None:
    copy_project(tmp_path)
    (tmp_path / "params.yaml").write_text("tokenizer: {kind: none}\ntask_name: null\n")
    recipe = str(tmp_path / "pipelines/tokenizer.py")
    by_dvc = run_recipe(ROOT, recipe, "task_name=one", "--cfg", "job", environment={"DVC_STAGE": "tokenizer"})
    assert yaml.safe_load(by_dvc.stdout) == {"tokenizer": {"kind": "none"}, "task_name": "one"}
    by_hand = run_recipe(ROOT, recipe, "--cfg", "job")
    assert yaml.safe_load(by_hand.stdout)["tokenizer"]["kind"] == "trained"


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        (("pipelines/pretrain.py", "optimizer.lrr=1"), "Did you mean optimizer.lr?"),
        (("pipelines/pretrain.py", "-m", "optimizer=adamw", "optimizer.beta_1=1,2"), "Did you mean optimizer.beta1"),
        (("pipelines/pretrain.py", "seed=3"), "Did you mean examples.seed or pretrain.seed or sweep.seed?"),
        (("bertline", "finetune", "dta=rows.csv"), "Did you mean data?"),
        (("bertline", "configure", "optimizer.lrr=1", "--save"), "Did you mean optimizer.lr?"),
        (("bertline", "configure", "sweep.space.epochz=1"), "Keys of sweep.space: learning_rate, "),
        (("bertline", "configure", "optimzer.lr=1", "--save"), "Did you mean optimizer.lr?"),
        (("bertline", "configure", "pretrain.phases.0.stepz=3"), "Did you mean pretrain.phases.0.steps?"),
        (("pipelines/pretrain.py", "pretrain.phases.9.steps=3"), "Did you mean pretrain.phases.0.steps"),
    ],
)
def test_a_mistyped_key_is_answered_with_the_key_that_was_meant(command: tuple[str, ...], meant: str) -> None:
    error = error_of(*command)
    key = next(word.partition("=")[0] for word in command if "=" in word and "adamw" not in word)
    assert error.startswith(f"error: {key} is no key of the configuration. {meant}") and "+" not in error


def test_an_entry_of_a_list_is_saved_with_its_list() -> None:
    entry = "pretrain.phases.0.steps=900"
    advised = error_of("bertline", "configure", entry, "--save").partition("Give the whole list: ")[2]
    changes = [run_bertline(ROOT, "configure", one).stdout for one in (entry, *shlex.split(advised))]
    assert changes[0].partition("Nothing was")[0] == changes[1].partition("Nothing was")[0] != ""


@pytest.mark.parametrize("recipe", [("pipelines/corpus.py",), ("bertline", "configure")])
def test_a_value_that_hydra_cannot_read_is_shown_with_the_quotes_it_needs(recipe: tuple[str, ...]) -> None:
    given = "corpus.document_start=[.;]("
    error = error_of(*recipe, "corpus=text", "corpus.document=regex", given)
    assert error.startswith(f"error: {given} cannot be read: ") and error.endswith("\"KEY='VALUE'\"")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("pretrain.phases[0].steps=5", "follows a dot: pretrain.phases.0.steps=5"),
        ("model", "An override is KEY=VALUE."),
    ],
)
def test_an_override_of_another_form_is_answered_with_the_right_one(given: str, says: str) -> None:
    assert error_of("bertline", "configure", given).endswith(says)


def test_a_choice_that_does_not_exist_is_answered_with_those_that_do() -> None:
    done = run_recipe(ROOT, "pipelines/pretrain.py", "optimizer=adamm")
    assert done.returncode == 1
    assert done.stderr.startswith("error: optimizer has no adamm. Did you mean adamw? It has adamw, adamw_short, ")
    assert len(done.stderr.splitlines()) == 1
    assert "Did you mean tiny?" in error_of("bertline", "configure", "model=tinny")
