"""Atomic writing of files and folders, and digests of their content.

What writes raises MachineError where a disk is full, fails or cannot be written; what was there
before stays.
"""

import errno
import fcntl
import glob
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bertline.foundation.errors import ArtifactError, MachineError

_RANDOM_CHARACTERS = 8  # added to the name of a temporary file, as tempfile does for a folder
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
# Numbers of the errors with which a file system says that it has no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_OF_A_PLACE = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EEXIST, errno.EIO,
)  # fmt: skip


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically: a reader sees either the old content or the new, never a part."""
    data = content.encode() if isinstance(content, str) else content
    with file_written_atomically(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def file_written_atomically(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file that replaces `path` when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(_RANDOM_CHARACTERS // 2)}")
    with writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch(exist_ok=False)
            yield temporary
            with temporary.open("rb") as handle:
                os.fsync(handle.fileno())
            temporary.replace(path)
        except BaseException:  # of the block, whatever it is: what it wrote may be large
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise an OSError of the block as a MachineError that names the path and says what to do; but not one of another
    file, which the block reads."""
    try:
        yield
    except OSError as error:
        other = None if error.filename is None else Path(os.fsdecode(error.filename))
        if other is not None and path.name not in str(other) and other not in path.parents:
            raise
        raise MachineError(cannot_write(path, error)) from error


def complete_lines(path: Path, position: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of a growing file from a position on, each with the position after it.

    An incomplete last line, which a killed or a running writer leaves, is not yielded; a missing
    file has no lines.
    """
    if not path.exists():
        return
    with path.open("rb") as handle:
        handle.seek(position)
        for line in handle:
            if line.endswith(b"\n"):
                position += len(line)
                yield line, position


def read_json_lines(path: Path) -> list[Any]:
    """Return the rows of a JSON Lines file, without an incomplete last line (of a killed writer);
    empty if missing."""
    return [json.loads(line) for line, _ in complete_lines(path)]


def keep_json_lines(path: Path, is_kept: Callable[[Any], bool]) -> None:
    """Drop the other lines of such a file, and an incomplete last one; a missing file stays away."""
    if path.exists():
        write_atomically(path, b"".join(line for line, _ in complete_lines(path) if is_kept(json.loads(line))))


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines to a file, adding a line end to each.

    Readers of the file must tolerate an incomplete last line, which a killed process can leave.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as handle:
            handle.writelines(f"{line}\n" for line in lines)


def write_json(path: Path, payload: Any) -> None:
    """Write JSON atomically, with sorted keys, indentation and a final newline: equal content gives
    equal bytes."""
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


def read_object(path: Path, *, missing_ok: bool = False, expected: type = dict) -> Any:
    """Read a JSON object (or `expected`) of a checkpoint, whoever wrote it; with `missing_ok`,
    empty without the file.

    Raises:
        ArtifactError: The file is missing, a pointer of git-lfs, no JSON, or another value.
    """
    if missing_ok and not path.is_file():
        return expected()
    refuse_lfs_pointer(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not valid JSON ({error}). Copy it again.") from error
    if not isinstance(content, expected):
        raise ArtifactError(f"{path} holds a {type(content).__name__}, expected a {expected.__name__}. Copy it again.")
    return content


def refuse_lfs_pointer(path: Path) -> None:
    """Raise ArtifactError if a file is missing, or the pointer that git leaves in place of a large
    one."""
    try:
        with path.open("rb") as handle:
            is_pointer = handle.read(len(_LFS_POINTER)) == _LFS_POINTER
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read ({error.strerror}). Copy the whole folder again.") from error
    if is_pointer:
        raise ArtifactError(
            f"{path} is a pointer of git-lfs, not the file itself. Fetch it: git lfs install && git -C {path.parent} "
            "lfs pull"
        )


def kept_json(path: Path, made_of: str, make: Callable[[], Any]) -> Any:
    """Return a JSON value from a cache file, or compute it with `make` and write it there, if that
    is possible.

    The file is rewritten if it has another `made_of`, the digest of what the value depends on.
    """
    with suppress(OSError, ValueError, LookupError):
        if (kept := json.loads(path.read_bytes()))["made_of"] == made_of:
            return kept["value"]
    value = make()
    with suppress(MachineError):
        write_atomically(path, json.dumps({"made_of": made_of, "value": value}))
    return value


@contextmanager
def folder_written_atomically(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `target` when the block ends without an error.

    It lies next to `target` under a hidden name, and so does what a killed writer leaves, which
    `drop_leftovers` removes.
    """
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=target.parent, prefix=f".{target.name}.", ignore_cleanup_errors=True
        ) as place:
            new = Path(place, "new")
            new.mkdir()
            yield new
            if target.exists():
                target.rename(Path(place, "old"))
            new.rename(target)


def drop_leftovers(target: Path) -> None:
    """Remove temporary files and folders of killed writers of `target`.

    Only the sole writer of `target` may call this, before it writes: temporary files of a running
    writer look the same.
    """
    for path in target.parent.glob(f".{glob.escape(target.name)}.{'?' * _RANDOM_CHARACTERS}"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sync_to_disk(path: Path) -> None:
    """Flush a file to disk (fsync), so that it survives a power failure; a missing file is ignored."""
    with writing(path), suppress(FileNotFoundError), path.open("rb") as handle:
        os.fsync(handle.fileno())


def lock_file(handle: IO[Any], *, wait: bool = False, shared: bool = False) -> bool | None:
    """Lock an open file, until it is closed or the process ends; with `wait`, after waiting for
    another process.

    Args:
        shared: Take a lock that any number may hold at once, which is refused only while one is
            held alone: so two that look at the same moment do not take each other for a holder. The
            file must be open for reading (NFS).

    Returns:
        Whether this process holds the lock; None where the file system has no locks (some mounts of
        Lustre and NFS): work goes on there as if this process were the only one, and what another
        may still use is not removed.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file while the block runs, as `lock_file` does, after waiting for it."""
    with path.open("a") as handle:
        lock_file(handle, wait=True)
        yield


def cannot_write(path: object, error: OSError, what: str = "written") -> str:
    """Return the error message for a place that is full, or that this user cannot write to."""
    return (
        f"{path} cannot be {what}: {error.strerror or error}. Free space there, or give this user the right to write, "
        "or choose another folder (runtime.runs_folder=FOLDER for runs); what was written before is still in place."
    )


def plain_error(error: Exception) -> MachineError | None:
    """Return what a person can fix about a place to write; None for any other error."""
    if not isinstance(error, OSError) or error.errno not in _OF_A_PLACE:
        return None
    return MachineError(cannot_write(error.filename or "a file", error, "used"))


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name; copy it to another file system, or to one without hard links."""
    with writing(target):
        try:
            target.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, target)


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_of_path(path: Path) -> str:
    """Return the SHA-256 of a file, or of a folder's relative file names and contents (without
    hidden files)."""
    if path.is_file():
        return sha256_of_file(path)
    digest = hashlib.sha256()
    for file in sorted(candidate for candidate in path.rglob("*") if candidate.is_file()):
        relative = file.relative_to(path)
        if any(part.startswith(".") for part in relative.parts):
            continue
        digest.update(f"{relative.as_posix()}\0{sha256_of_file(file)}\n".encode())
    return digest.hexdigest()


def sha256_of_json(value: Any) -> str:
    """Return the SHA-256 of a value as JSON, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def size_of_path(path: Path) -> int:
    """Return the size in bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())
