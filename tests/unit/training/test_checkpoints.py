import errno

import pytest
import torch

from bertline.foundation.errors import MachineError
from bertline.training import checkpoints
from bertline.training.checkpoints import CheckpointFolder


def state(value: int) -> dict:
    return {"weights": torch.full((3,), float(value)), "step": value, "note": {"list": [1, "two"]}}


def test_the_newest_checkpoint_comes_back_as_it_was(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=3)
    folder.save(10, state(10))
    folder.save(200, state(200))
    newest = CheckpointFolder(tmp_path, keep=3).load_newest()
    assert newest.step == 200
    assert torch.equal(newest.state["weights"], torch.full((3,), 200.0))
    assert newest.state["note"] == {"list": [1, "two"]}


def test_a_new_run_has_none(tmp_path):
    assert CheckpointFolder(tmp_path / "missing", keep=1).load_newest() is None


def test_only_the_newest_are_kept(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        folder.save(step, state(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000003.pt",
        "step-00000003.pt.sha256",
        "step-00000004.pt",
        "step-00000004.pt.sha256",
    ]


def torn(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def corrupted(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def without_digest(path):
    path.with_name(f"{path.name}.sha256").unlink()


@pytest.mark.parametrize("damage", [torn, corrupted, without_digest])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(tmp_path, capsys, damage):
    folder = CheckpointFolder(tmp_path, keep=3)
    folder.save(1, state(1))
    damage(folder.save(2, state(2)))
    assert folder.load_newest().step == 1
    assert "step-00000002.pt" in capsys.readouterr().err


def test_all_damaged_is_as_none_and_says_so(tmp_path, capsys):
    folder = CheckpointFolder(tmp_path, keep=3)
    torn(folder.save(1, state(1)))
    assert folder.load_newest() is None
    assert "warning" in capsys.readouterr().err


def test_a_half_written_file_is_not_taken_for_a_checkpoint(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=3)
    folder.save(1, state(1))
    (tmp_path / ".step-00000002.pt.part").write_bytes(b"half")
    (tmp_path / "step-00000002.pt.sha256").write_text("0" * 64)  # the kill came between digest and rename
    assert folder.load_newest().step == 1


def failing_handle(path, error):
    """A file that takes a little and then fails, as a full disk does."""
    handle = path.open("wb")

    class Failing:
        def write(self, data):
            if handle.tell() > 50:
                raise error
            return handle.write(data)

        def flush(self):
            handle.flush()

    return Failing()


@pytest.mark.parametrize("where", ["while writing", "while syncing"])
def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path, monkeypatch, where):
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(1, state(1))
    full = OSError(errno.ENOSPC, "No space left on device")
    save = torch.save
    if where == "while writing":
        monkeypatch.setattr(
            checkpoints.torch, "save", lambda content, handle: save(content, failing_handle(tmp_path / "x", full))
        )
    else:
        monkeypatch.setattr(checkpoints.os, "fsync", lambda descriptor: (_ for _ in ()).throw(full))
    with pytest.raises(MachineError, match="step-00000002.pt cannot be written: No space left on device"):
        folder.save(2, state(2))
    monkeypatch.undo()
    assert folder.load_newest().step == 1
    assert not list(tmp_path.glob(".*.part"))


def test_a_second_signal_while_saving_is_not_taken_for_a_full_disk(tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(1, state(1))
    save = torch.save
    monkeypatch.setattr(
        checkpoints.torch,
        "save",
        lambda content, handle: save(content, failing_handle(tmp_path / "x", KeyboardInterrupt())),
    )
    with pytest.raises(KeyboardInterrupt):
        folder.save(2, state(2))
    assert folder.load_newest().step == 1


class Trap:
    def __reduce__(self):
        return (print, ("code ran while loading",))


def test_no_code_is_run_by_loading(tmp_path, capsys):
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(1, {"trap": Trap()})
    with pytest.raises(Exception, match="(?i)weights_only|unsupported"):
        folder.load_newest()
    assert "code ran" not in capsys.readouterr().out
