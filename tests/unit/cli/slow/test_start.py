"""The command `bertline` in a process of its own: how it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bertline.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[4]


def test_without_arguments_it_lists_every_command_and_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['bertline']\nfrom bertline.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    status = end.code\n"
        "print(status, {'hydra', 'torch', 'numpy', 'yaml', 'mlflow', 'dvc'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    *text, last = done.stdout.splitlines()
    assert last == "None set()"
    assert {line.split()[0] for line in text if line.startswith("  ")} == set(COMMANDS)


@pytest.mark.parametrize("arguments", ["finetune data=/rows.csv", "predict input=/rows.csv", "doctor", "configure"])
def test_in_a_deleted_folder_a_command_says_so_in_one_line(tmp_path: Path, arguments: str) -> None:
    script = f"rmdir {tmp_path}; exec {sys.executable} -m bertline {arguments}"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "error: the working folder was deleted. Change to another one and give the command again.\n"
