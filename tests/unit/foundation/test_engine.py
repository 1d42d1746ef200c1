"""Work over shards: done once, whatever is killed or torn, and the same with any number of workers."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bertline.foundation.engine import LocalEngine, shard_folder
from bertline.foundation.errors import DataError
from bertline.foundation.files import sha256_of_path


def squares(log: Path, shard: int, out: Path) -> dict[str, Any]:
    """Write squares of a shard, and note that it was done; shard 13 is bad input, 99 kills its process."""
    if shard == 13:
        raise DataError("shard 13 is bad")
    if shard == 14:
        raise PermissionError(errno.EACCES, "Permission denied", "/data/input.parquet")
    if shard == 99:
        os.kill(os.getpid(), signal.SIGKILL)
    (out / "squares.txt").write_text(" ".join(str(number * number) for number in range(shard)))
    (log / f"{shard}-{os.urandom(4).hex()}").touch()
    return {"numbers": shard}


def _done(log: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[0]) for path in log.iterdir())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def test_results_come_in_order_and_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path, log: Path) -> None:
    shards = [5, 3, 4, 1]
    for num_workers in (0, 2):
        counts = LocalEngine(num_workers).map(partial(squares, log), shards, tmp_path / str(num_workers))
        assert counts == [{"numbers": shard} for shard in shards]
    assert sha256_of_path(tmp_path / "0") == sha256_of_path(tmp_path / "2")


def test_whole_shards_are_skipped_and_the_others_are_done_again(tmp_path: Path, log: Path) -> None:
    out, engine = tmp_path / "out", LocalEngine(0)
    engine.map(partial(squares, log), [1, 2, 3, 4], out)
    undisturbed = sha256_of_path(out)
    shutil.rmtree(shard_folder(out, 1))
    (out / ".00001.left").mkdir()
    (shard_folder(out, 2) / "squares.txt").write_text("0 1 5")
    manifest = shard_folder(out, 3) / "shard.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    assert engine.map(partial(squares, log), [1, 2, 3, 4], out) == [{"numbers": shard} for shard in (1, 2, 3, 4)]
    assert _done(log) == [1, 2, 2, 3, 3, 4, 4]
    assert sha256_of_path(out) == undisturbed
    assert not (out / ".00001.left").exists()


def test_another_plan_does_not_take_the_work_of_the_first(tmp_path: Path, log: Path) -> None:
    out, engine = tmp_path / "out", LocalEngine(0)
    engine.map(partial(squares, log), [1, 2, 3], out)
    assert engine.map(partial(squares, log), [1, 4], out) == [{"numbers": 1}, {"numbers": 4}]
    assert sorted(path.name for path in out.iterdir()) == ["00000", "00001"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_bad_input_is_raised_as_it_is_and_what_was_done_stays(tmp_path: Path, log: Path, num_workers: int) -> None:
    with pytest.raises(DataError, match="shard 13 is bad"):
        LocalEngine(num_workers).map(partial(squares, log), [2, 13], tmp_path / "out")
    with pytest.raises(PermissionError, match=re.escape("/data/input.parquet")):
        LocalEngine(num_workers).map(partial(squares, log), [2, 14], tmp_path / "out")
    assert (shard_folder(tmp_path / "out", 0) / "shard.json").exists() or num_workers
    assert not shard_folder(tmp_path / "out", 1).exists()


def test_a_killed_run_goes_on_to_the_samesha256_of_path(tmp_path: Path, log: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from functools import partial; sys.path.insert(0, sys.argv[1]);"
        "from test_engine import squares; from bertline.foundation.engine import LocalEngine;"
        "LocalEngine(0).map(partial(squares, Path(sys.argv[2])), [3, 4, 99], Path(sys.argv[3]))"
    )
    out = tmp_path / "out"
    folders = [str(Path(__file__).parent), str(log), str(out)]
    killed = subprocess.run([sys.executable, "-c", code, *folders], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    LocalEngine(0).map(partial(squares, log), [3, 4, 5], out)
    assert _done(log) == [3, 4, 5]
    LocalEngine(0).map(partial(squares, log), [3, 4, 5], tmp_path / "undisturbed")
    assert sha256_of_path(out) == sha256_of_path(tmp_path / "undisturbed")
