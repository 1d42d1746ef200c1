"""The average of two encoders: its weights, its tokenizer, what may differ, and the command."""

import subprocess
import sys
from pathlib import Path

import tiny
from bertline.modeling.averaging import average_encoders


def averaged_by_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bertline", "average", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_writes_the_average_and_spares_a_folder_that_is_there(tmp_path):
    first, second = (str(tiny.write_encoder(tmp_path / str(seed), seed=seed)) for seed in (1, 2))
    mean = str(tmp_path / "mean")
    done = averaged_by_command(first, second, mean, "--share", "0.25")
    assert done.returncode == 0, done.stderr
    average_encoders(Path(first), Path(second), tmp_path / "same", share=0.25)
    written = (tmp_path / "mean/model.safetensors").read_bytes()
    assert written == (tmp_path / "same/model.safetensors").read_bytes()
    wrong = averaged_by_command(first, second, str(tmp_path / "other"), "--share", "2")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    assert "share is 2; it is the weight of the second encoder" in wrong.stderr
    assert not (tmp_path / "other").exists()
    again = averaged_by_command(first, second, mean)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert (tmp_path / "mean/model.safetensors").read_bytes() == written
