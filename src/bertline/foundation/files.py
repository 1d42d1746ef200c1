"""Files that are either whole or absent, and digests of their content."""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from bertline.foundation.errors import ArtifactError, MachineError

_CHUNK_BYTES = 1 << 20
_RANDOM_CHARACTERS = 8  # that tempfile adds to a name
_PARTIAL = ".partial"
_LOCK, _TARGET, _NEW, _OLD = "lock", "target", "new", "old"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Raises:
        MachineError: The folder is full or cannot be written; the old file is untouched.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        # mkstemp makes files that only their owner can read; a result is as readable as any other file.
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise MachineError(cannot_write(path, error)) from error


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines, each of which gets its end, to a file that readers know to have a torn last line after a kill.

    Raises:
        MachineError: The folder is full or cannot be written; the lines before are in place.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as handle:
            handle.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise MachineError(cannot_write(path, error)) from error


def write_json(path: Path, payload: Any) -> None:
    """Write JSON atomically: sorted keys, indented, one newline at the end, so that equal content is equal bytes."""
    write_atomically(path, json.dumps(payload, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file that bertline wrote.

    Raises:
        ArtifactError: The file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing. Run the stage that writes it (dvc repro).") from error
    except ValueError as error:
        raise ArtifactError(f"{path} is not valid JSON ({error}). Delete it and run its stage again.") from error


def kept_json(path: Path, made_of: str, make: Callable[[], Any]) -> Any:
    """A JSON value that an earlier call kept in a file, or else a new one, which is kept for later calls.

    Args:
        path: The file. One that was made of something else, is torn or has changed is written again; one that cannot be
            written is done without.
        made_of: Digest of all that the value depends on.
        make: Makes the value, in lists, dictionaries, strings and numbers.
    """
    with suppress(OSError, ValueError):
        first, _, payload = path.read_bytes().partition(b"\n")
        if first.decode() == f"{made_of} {hashlib.sha256(payload).hexdigest()}":
            return json.loads(payload.decode("utf-8", "surrogatepass"))
    value = make()
    # As escapes, two lone surrogates would come back as one character.
    payload = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    with suppress(MachineError):
        write_atomically(path, f"{made_of} {hashlib.sha256(payload).hexdigest()}\n".encode() + payload)
    return value


@contextmanager
def folder_written_atomically(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `target` when the block ends without an error.

    The temporary folder lies in `.partial` in the first folder of a relative path (`artifacts/.partial` for
    `artifacts/sweep/cola`), never inside a folder that is read as a whole; for an absolute path it is next to
    `target`. An error leaves the old `target` unchanged. The swap is two renames: whatever a kill leaves behind is
    put in place or removed by `tidy_partial`, which every later write calls first.

    Raises:
        MachineError: The folder is full or cannot be written; the old `target` is untouched.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        tidy_partial(target)
        place, lock = _claimed_place(target)
    except OSError as error:
        raise MachineError(cannot_write(target, error)) from error
    with lock:
        try:
            yield place / _NEW
            _swap(place, target)
        except OSError as error:
            raise MachineError(cannot_write(target, error)) from error
        finally:
            _remove(place)
            _remove_if_empty(place.parent)


def tidy_partial(target: Path) -> None:
    """Complete or remove what killed writers of folders left in the place of the temporary folder of `target`.

    An interrupted swap is completed, since its new folder is complete. Everything else is incomplete and is removed.
    Running writers hold a lock, which the kernel releases with their process; their folders are left alone.
    """
    partial = _partial_folder(target)
    places: list[Path] = []
    with suppress(FileNotFoundError, NotADirectoryError):  # the last writer removes it
        places = list(partial.iterdir())
    for place in places:
        # A failure here means that another process is at this place, or that it belongs to another user.
        with suppress(OSError), (place / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A kill while a place was being removed leaves any of its parts, but not the name of the target, which is
            # removed first: nothing to complete.
            if all((place / part).exists() for part in (_OLD, _NEW, _TARGET)):
                cut_in_two = partial.parent / (place / _TARGET).read_text(encoding="utf-8")
                if not cut_in_two.exists():
                    cut_in_two.parent.mkdir(parents=True, exist_ok=True)
                    (place / _NEW).rename(cut_in_two)
            _remove(place)
    _remove_if_empty(partial)


def _partial_folder(target: Path) -> Path:
    first = Path(target.parts[0])
    has_first = not target.is_absolute() and first not in (target, Path(".."))
    if has_first and first.exists():
        parent = next(path for path in target.parents if path.exists())
        if parent.stat().st_dev == first.stat().st_dev:  # a rename works only within one file system
            return first / _PARTIAL
    return target.parent / _PARTIAL


def _claimed_place(target: Path) -> tuple[Path, TextIO]:
    """A place for the temporary folder, and the lock that shows that its writer is running."""
    partial = _partial_folder(target)
    while True:
        if partial.is_file() or (partial.is_symlink() and not partial.exists()):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(partial))
        # Until the lock is held, another process may tidy the place away: then this tries again. That can also come
        # within mkdir, between its finding that the folder exists and its look whether that is a folder.
        with suppress(FileNotFoundError, FileExistsError, BlockingIOError):
            partial.mkdir(parents=True, exist_ok=True)
            place = Path(tempfile.mkdtemp(dir=partial, prefix=f"{target.name}."))
            lock = (place / _LOCK).open("a")
            _take(lock)
            (place / _TARGET).write_text(os.path.relpath(target, partial.parent), encoding="utf-8")
            (place / _NEW).mkdir()
            return place, lock


def _take(lock: TextIO) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise
    except OSError as error:
        # A file system without locks: nothing is tidied there, since no process gets the lock.
        if error.errno not in _NO_LOCKS:
            raise


def _swap(place: Path, target: Path) -> None:
    """Move `target` to the old folder of a place, and the place's new folder to `target`."""
    if target.exists():
        target.rename(place / _OLD)
    try:
        (place / _NEW).rename(target)
    except OSError:
        if (place / _OLD).exists():
            (place / _OLD).rename(target)
        raise


def _remove(place: Path) -> None:
    """Remove a temporary folder, the name of its target first: without it nobody completes what is half removed."""
    (place / _TARGET).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def drop_leftovers(target: Path) -> None:
    """Remove the temporary files and folders that killed writers of `target` left.

    Only for the sole writer of `target`, before it writes: the files of a running writer look the same.
    """
    tidy_partial(target)
    for path in target.parent.glob(f".{glob.escape(target.name)}.{'?' * _RANDOM_CHARACTERS}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sync_to_disk(path: Path) -> None:
    """Wait until what was written to a file would outlast a power cut; a missing file is nothing to wait for.

    Raises:
        MachineError: The disk is full, or fails.
    """
    try:
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
    except FileNotFoundError:
        return
    except OSError as error:
        raise MachineError(cannot_write(path, error)) from error


def cannot_write(path: Path, error: OSError) -> str:
    """The sentence for a full or unwritable folder."""
    return (
        f"{path} cannot be written: {error.strerror or error}. "
        "Free space there or choose another folder; what was written before is still in place."
    )


def sha256_of_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_of_path(path: Path) -> str:
    """The SHA-256 of a file, or of a folder's relative file names and contents (hidden files left out)."""
    if path.is_file():
        return sha256_of_file(path)
    digest = hashlib.sha256()
    for file in sorted(candidate for candidate in path.rglob("*") if candidate.is_file()):
        relative = file.relative_to(path)
        if any(part.startswith(".") for part in relative.parts):
            continue
        digest.update(f"{relative.as_posix()}\0{sha256_of_file(file)}\n".encode())
    return digest.hexdigest()


def size_of_path(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
