"""The example files of docs/howto/labelled-rows.md are what the page says they are, and all their rows are read."""

from __future__ import annotations

import copy
import functools
import re
import shlex
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bertline.cli import finetune
from bertline.cli.overrides import quoted_where_needed
from bertline.foundation.bad_rows import BadRows
from bertline.kinds.question_answering import read_squad
from bertline.kinds.retrieval import Retrieval
from bertline.tasks.conll import read_conll
from bertline.tasks.span_files import read_annotated
from bertline.tasks.table_source import OneLabel, SeveralLabels, table_rows
from shipped_tasks import shipped_task, validated

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/howto/labelled-rows.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*)\n```\n\n```text\n(.*)\n```", PAGE, flags=re.MULTILINE)
FILES = dict(re.findall(r"^`(\S+)`:\n\n```text\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
ROWS = {"comments.csv": 3, "label_studio.json": 1, "questions.json": 1, "library": 4}  # of others: 2


def num_rows(task: Any, bad_rows: BadRows) -> int:
    source = task.source
    if task.kind == "retrieval":
        return sum(map(len, Retrieval.build("search", task).splits.values()))
    if source.kind == "table" and task.kind == "classification":
        return len(table_rows(source, SeveralLabels if task.multi_label else OneLabel, bad_rows)["train"])
    read: Any = {"table": read_annotated, "conll": read_conll, "squad": read_squad}[source.kind]
    return len(read(Path(source.path) / source.train_file, source, bad_rows))


@pytest.mark.parametrize(("command", "printed"), COMMANDS)
def test_an_example_is_what_the_page_says_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, printed: str
) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(finetune, "here", lambda path: None if path is None else tmp_path / path)
    monkeypatch.setattr(finetune, "of_caller", lambda path: tmp_path / path)
    monkeypatch.setattr(finetune, "conf_task", functools.cache(shipped_task))
    monkeypatch.setattr(finetune, "named_starts", lambda composed: {"FOLDER_OR_NAME": str(tmp_path)})
    monkeypatch.setattr(finetune, "resolve_folder", lambda *_: tmp_path)
    stages = Mock(side_effect=InterruptedError)
    monkeypatch.setattr(finetune, "run_stages", stages)
    _, _, *overrides = shlex.split(command)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        composed: Any = OmegaConf.to_container(compose("finetune", overrides=quoted_where_needed(overrides)))
    composed["runtime"]["runs_folder"] = str(tmp_path / "runs")
    with pytest.raises(InterruptedError):
        finetune.fine_tuned(copy.deepcopy(composed))
    assert capsys.readouterr().out.splitlines()[0] == printed
    (name, task), bad_rows = *stages.call_args.args[0]["tasks"].items(), BadRows("error")
    data = overrides[0].partition("=")[2]
    assert num_rows(validated(name, task), bad_rows) == ROWS.get(data, 2)
    bad_rows.end()


def test_every_example_has_a_command() -> None:
    assert {f"data={name.partition('/')[0]}" for name in FILES} == {command.split()[2] for command, _ in COMMANDS}
