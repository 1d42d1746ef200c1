"""Input files: finding them, joining lines to paragraphs, and what is left out, counted by reason with samples."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from bertline.corpus.compression import COMPRESSED_SUFFIXES, without_compression
from bertline.foundation.errors import DataError
from bertline.foundation.progress import of_kind, say, warn

# What readers leave out: counted by reason, with a few samples for a person to read.

_MAX_CHARACTERS = 1_000
_UNPRINTABLE = "\ufffd"

Show = Callable[[str, str, str], None]
"""Takes reason, place and text of something that was left out."""


class ShownCounts(Counter[str]):
    """Counts of what a reader leaves out, which are shown as they are counted."""

    def __init__(self, show: Show) -> None:
        super().__init__()
        self.show = show


def leave_out(dropped: Counter[str], reason: str, where: str, text: str = "") -> None:
    """Count something that is left out, and show it where the counts are shown.

    Example:
        >>> seen = []
        >>> counts = ShownCounts(lambda *one: seen.append(one))
        >>> leave_out(counts, "documents/undecodable", "a.txt:3", "caf\\x00 au\\n lait")
        >>> counts["documents/undecodable"], seen
        (1, [('documents/undecodable', 'a.txt:3', 'caf� au lait')])
    """
    dropped[reason] += 1
    if isinstance(dropped, ShownCounts):
        dropped.show(reason, _readable(where), _readable(text))


def counts_of_source(dropped: Counter[str], name: str) -> Counter[str]:
    """Return a counter for one of several sources, shown where `dropped` is, with ids that begin with its name."""
    if not isinstance(dropped, ShownCounts):
        return Counter()
    show = dropped.show
    return ShownCounts(lambda reason, where, text: show(reason, f"{name}/{where}", text))


def _readable(text: str) -> str:
    text = " ".join(text[:_MAX_CHARACTERS].split())
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _UNPRINTABLE for character in text)


# A line up to this length may be wrapped and is joined with the next one; a longer line ends a paragraph.
_MAX_WRAPPED_CHARACTERS = 100
_SHOWN_ENDINGS = 5
_SHOWN_FILES = 3


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to read."""

    path: Path
    name: str
    """Path relative to the configured path, with `/` as separator: the same on every machine."""


def find_files(place: str, suffixes: tuple[str, ...], dropped: Counter[str]) -> list[InputFile]:
    """Find the files of a folder (searched recursively) or a glob, or a single file.

    Args:
        place: The setting `corpus.path`.
        suffixes: File name suffixes to include from a folder, each optionally followed by that of a compression; empty
            includes all.
        dropped: Counter; files of a folder with other suffixes are counted under `files/other_suffix`.

    Returns:
        The files sorted by name; hidden files and folders inside a folder are left out.

    Raises:
        DataError: No file was found.
    """
    root = Path(place)
    if root.is_file():
        return [InputFile(root, root.name)]
    if root.is_dir():
        paths = [path for path in root.rglob("*") if path.is_file()]
        names = {path.relative_to(root).as_posix(): path for path in paths}
        names = {name: path for name, path in names.items() if not any(part[0] == "." for part in name.split("/"))}
    else:
        fixed = Path(*takewhile(lambda part: not glob.has_magic(part), root.parts[:-1]))
        matched = [Path(path) for path in glob.glob(place, recursive=True)]  # noqa: PTH207 (Path.glob refuses absolute)
        names = {path.relative_to(fixed).as_posix(): path for path in matched if path.is_file()}
        suffixes = ()
    wanted = {
        name: path for name, path in names.items() if not suffixes or without_compression(name).endswith(suffixes)
    }
    others = sorted(names.keys() - wanted.keys())
    if others:
        for name in others:
            leave_out(dropped, "files/other_suffix", name)
        endings = Counter(Path(name).suffix or "no ending" for name in others).most_common(_SHOWN_ENDINGS)
        shown = ", ".join(f"{count:,} with {ending}" for ending, count in endings)
        say(
            f"{place}: {len(others):,} files that this reader does not take are left out ({shown}), such as "
            f"{', '.join(others[:_SHOWN_FILES])}"
        )
    if not wanted:
        expected = (
            f"files ending in {' or '.join(suffixes)} (or with {', '.join(COMPRESSED_SUFFIXES)} after it)"
            if suffixes
            else "files"
        )
        besides = f"; it holds {len(others)} other files, such as {others[0]}" if others else ""
        state = "matches nothing" if not root.is_dir() else f"holds no {expected}{besides}"
        raise DataError(f"corpus.path: {place!r} (in {Path.cwd()}) {state}. Put your text there, or name its place.")
    return [InputFile(wanted[name], name) for name in sorted(wanted)]


def paragraphs_of(lines: Iterable[str]) -> Iterator[str]:
    r"""Gather wrapped lines to paragraphs; a blank line, or a line too long to be wrapped, ends a paragraph.

    Example:
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


# What is wrong with an input file: an error that names it, or counted and said, as the configuration tells.

OnUndecodable = Literal["fail", "skip", "replace"]


class FileFaults:
    """Faults of one file."""

    def __init__(self, file: InputFile, policy: OnUndecodable, dropped: Counter[str]) -> None:
        self._file = file
        self._policy = policy
        self._dropped = dropped

    def count(self, reason: str, problem: str, fix: str) -> None:
        """Count a fault of the whole file.

        Raises:
            DataError: With `fail`.
        """
        if self._policy == "fail":
            raise DataError(
                f"{self._file.path}: {problem}. {fix}, or set corpus.on_undecodable=skip to keep what can be read and "
                "count the rest."
            )
        leave_out(self._dropped, reason, self._file.name, problem)
        fate = f"what cannot be read of it is left out, counted under {reason}"
        warn(f"{self._file.path}: {problem}; {fate}", extra=of_kind(reason))
