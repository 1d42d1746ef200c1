"""Input files over fsspec: found, cut into shards, opened (also compressed), and checked for changes.

A path may be local or a URL (`s3://`, `gs://`, `hf://`), whose credentials and endpoint come from the environment.
"""

import bz2
import errno
import glob
import gzip
import io
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import IO, Any, Literal

import fsspec
from backports import zstd
from fsspec.implementations.local import LocalFileSystem

from bertline.corpus.document import Dropped
from bertline.foundation.errors import DataError
from bertline.foundation.parallel import batches

OnUndecodable = Literal["fail", "skip"]
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
TORN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError)
"""What damaged compressed data raises. bz2 raises OSError without an error number: see `torn`."""
_MARKS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}
_OPENERS: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open, "zstandard": zstd.open}
# A line up to this length may be wrapped and is joined with the next one; a longer line ends a
# paragraph.
_MAX_WRAPPED_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Part:
    """A file, or a range of it."""

    path: str
    name: str
    """Path relative to the configured one, with `/` as separator: the same on every machine."""
    size: int
    """Bytes of the whole file."""
    version: str = ""
    """Time of change or entity tag: with `size` it tells that the file has changed."""
    start: int = 0
    stop: int | None = None
    """Range of bytes, row groups or rows, as the reader counts; None: to the end."""
    range_bytes: int | None = None
    """Bytes of the range, about; None: all."""

    @property
    def label(self) -> str:
        """Beginning of the ids of documents: `rows.jsonl`, and where a later range begins `rows.jsonl@64000000`."""
        return f"{self.name}@{self.start}" if self.start else self.name


@dataclass(frozen=True, slots=True)
class InputShard:
    """Some of the input, which is read at once. The shards of an input do not depend on who reads them."""

    source: str
    """Name of one of several sources, else empty."""
    parts: tuple[Part, ...]


def find_files(place: str, suffixes: tuple[str, ...]) -> tuple[list[Part], list[Dropped]]:
    """Find the files of a folder (searched recursively) or a glob, or a single file.

    Args:
        place: The setting `corpus.path`.
        suffixes: File name suffixes to include from a folder, each optionally followed by that of a compression; empty
            includes all.

    Returns:
        The files sorted by name, without hidden ones, and those of a folder with other suffixes.

    Raises:
        DataError: No file was found, or the place cannot be read.
    """
    with naming(place):
        system, root = fsspec.url_to_fs(place)
        is_folder = system.isdir(root)
        if is_folder:
            base, paths = root.rstrip("/"), system.find(root)
        else:
            base = "/".join(takewhile(lambda part: not glob.has_magic(part), root.split("/")[:-1]))
            paths = [path for path in (root, *system.glob(root)) if system.isfile(path)]
        names = {path[len(base) :].lstrip("/"): path for path in paths}
        if is_folder:
            names = {name: path for name, path in names.items() if not any(one[0] == "." for one in name.split("/"))}
        wanted = [name for name in sorted(names) if not is_folder or without_compression(name).endswith(suffixes or "")]
        address = str if isinstance(system, LocalFileSystem) else system.unstrip_protocol
        parts = [Part(address(names[name]), name, *_state(system, names[name])) for name in wanted]
    if not wanted:
        expected = f"no file ending in {' or '.join(suffixes)}" if suffixes else "no file"
        state = (
            f"holds {expected} (or with {', '.join(COMPRESSED_SUFFIXES)} after it)" if is_folder else "matches nothing"
        )
        raise DataError(f"corpus.path: {place!r} (in {Path.cwd()}) {state}. Put your text there, or name its place.")
    return parts, [Dropped("files/other_suffix", name) for name in sorted(names.keys() - set(wanted))]


def _state(system: Any, path: str) -> tuple[int, str]:
    info = system.info(path)
    return int(info["size"] or 0), str(info.get("ETag") or info.get("mtime") or info.get("LastModified") or "")


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Turn what a file system raises into one error that names the path.

    Raises:
        DataError: The file or the object store cannot be read.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # object stores raise exceptions of many libraries
        if isinstance(error, OSError) or "://" in path:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
            raise DataError(f"{path} cannot be read: {reason}.") from error
        raise


def refuse_changed(part: Part) -> None:
    """Check that a file is still as it was when the shards were planned.

    Raises:
        DataError: It has changed.
    """
    system, path = fsspec.url_to_fs(part.path)
    if _state(system, path) != (part.size, part.version):
        raise DataError(f"{part.path} has changed while it was read. Leave the text as it is, and run again.")


def shards_of(source: str, parts: Iterable[Part], shard_bytes: int) -> list[InputShard]:
    """Gather parts, in order, to shards of about so many bytes."""
    sized = batches(
        parts, size=lambda part: part.size if part.range_bytes is None else part.range_bytes, most=shard_bytes
    )
    return [InputShard(source, tuple(some)) for some in sized]


def line_ranges(part: Part, range_bytes: int) -> list[Part]:
    """Cut a plain file of lines into ranges of about so many bytes that end with a line; others are not cut."""
    if part.size < 2 * range_bytes or compression_of(part.path) is not None:
        return [part]
    bounds = [0]
    with naming(part.path), _opened_file(part.path) as handle:
        for place in range(range_bytes, part.size - range_bytes // 2, range_bytes):
            bounds.append(_line_end(handle, max(place, bounds[-1])))
    bounds = sorted({*bounds, part.size})
    if len(bounds) == 2:  # of lines that long; read as a stream
        return [part]
    return [replace(part, start=start, stop=stop, range_bytes=stop - start) for start, stop in pairwise(bounds)]


def _line_end(handle: IO[bytes], place: int) -> int:
    """Return where the line ends that a byte is of."""
    handle.seek(place)
    while chunk := handle.read(1 << 16):
        if (at := chunk.find(b"\n")) >= 0:
            return place + at + 1
        place += len(chunk)
    return place


@cache  # every bad line of a range asks for it
def lines_before(part: Part) -> int:
    """Return the number of lines of a file before a range, which is read for it: for messages."""
    count, left = 0, part.start
    with _opened_file(part.path) as handle:
        while left and (chunk := handle.read(min(left, 1 << 20))):
            count, left = count + chunk.count(b"\n"), left - len(chunk)
    return count


def _opened_file(path: str) -> IO[bytes]:
    return fsspec.open(path, "rb").open() if "://" in path else Path(path).open("rb")


@contextmanager
def opened(part: Part) -> Iterator[IO[bytes]]:
    """Open the content of a part as a stream of bytes; compression is told by the first bytes."""
    with ExitStack() as stack:
        handle = stack.enter_context(_opened_file(part.path))
        if part.stop is not None:
            yield _range(handle, part.start, part.stop)
        elif (kind := _compression(handle)) is not None:
            yield stack.enter_context(_OPENERS[kind](handle))
        else:
            yield handle


def _range(handle: IO[bytes], start: int, stop: int) -> io.BytesIO:
    handle.seek(start)
    content = handle.read(stop - start)
    if len(content) < stop - start:
        raise OSError(errno.EIO, f"it ended {stop - start - len(content):,} bytes early")
    return io.BytesIO(content)


def _compression(handle: IO[bytes]) -> str | None:
    head = handle.read(max(map(len, _MARKS)))
    handle.seek(0)
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)


def compression_of(path: str) -> str | None:
    """Return the name of a file's compression, by its first bytes; None if it is not compressed."""
    with naming(path), _opened_file(path) as handle:
        return _compression(handle)


def without_compression(name: str) -> str:
    """Return a file name in lower case, without the ending of a compression.

    >>> without_compression("Rows.TSV.zst")
    'rows.tsv'
    """
    name = name.lower()
    return next((name.removesuffix(ending) for ending in COMPRESSED_SUFFIXES if name.endswith(ending)), name)


def fault(part: Part, policy: OnUndecodable, reason: str, problem: str, fix: str) -> Dropped:
    """Return what is left out for a fault of a whole file."""
    fails = (f"{part.path}: {problem}.", f"{fix}.") if policy == "fail" else None
    return Dropped(reason, part.name, problem, fault=fails)


def torn(part: Part, policy: OnUndecodable, error: Exception, place: str = "") -> Dropped:
    """Return what is left out where compressed data is damaged; an error of the disk is raised again."""
    if not isinstance(error, TORN) and not (type(error) is OSError and error.errno is None):
        raise error
    problem = f"the {compression_of(part.path)} data is torn{place} ({error})"
    return fault(part, policy, "files/torn", problem, "Copy the file again")


def paragraphs_of(lines: Iterable[str]) -> Iterator[str]:
    r"""Gather wrapped lines to paragraphs; a blank line, or a line too long to be wrapped, ends a paragraph.

    >>> list(paragraphs_of(["It was", "late.", "", "x" * 200, "Next."]))[0]
    'It was\nlate.'
    >>> len(list(paragraphs_of(["It was", "late.", "", "x" * 200, "Next."])))
    3
    """
    waiting: list[str] = []
    for line in lines:
        text = line.strip()
        if text:
            waiting.append(text)
        if waiting and (not text or len(text) > _MAX_WRAPPED_CHARACTERS):
            yield "\n".join(waiting)
            waiting = []
    if waiting:
        yield "\n".join(waiting)


# Files of which `save_to_disk` writes at least one.
_SAVED = ("dataset_info.json", "dataset_dict.json", "state.json")


def open_dataset(dataset: Any, split: str, *, streaming: bool) -> Any:
    """Return a split of a dataset, of which `name` (on the hub, or a folder), `revision` and `subset` are given: mapped
    rows of a folder of `save_to_disk`; of another folder or the hub, rows or a stream. Its code is never run."""
    import datasets  # on demand: the import takes over a second

    datasets.disable_progress_bars()
    if any((Path(dataset.name) / file).exists() for file in _SAVED):
        saved = datasets.load_from_disk(dataset.name)
        return saved[split] if isinstance(saved, datasets.DatasetDict) else saved
    return datasets.load_dataset(
        dataset.name, dataset.subset, split=split, revision=dataset.revision, streaming=streaming
    )
