"""The findings of all ranks as one table, as data, and as an exit status."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertline.doctor.finding import Finding, Status

_MARKS: dict[Status, tuple[str, str]] = {
    "green": ("ok", "32"),
    "note": ("note", "33"),
    "red": ("RED", "1;31"),
    "unused": ("-", "2"),
}
_NUMBER_AND_UNIT = re.compile(r"(\d) (?=(?:[kMG]?B|[mµ]?s|MB/s|GB/s)\b)")
_MARK_WIDTH = 6
_MOST_CHECK_WIDTH = 26
_MOST_NAMES = 4
_MOST_ROWS = 5
"""Rows of one check that are shown; a thousand ranks may be red for a thousand reasons."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reporter:
    """A rank that reports."""

    rank: int
    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A finding and the ranks that share it."""

    finding: Finding
    reporters: tuple[Reporter, ...]
    everywhere: bool
    """Whether all ranks that ran this check share the finding."""
    where: str
    """The ranks or hosts as text; empty if `everywhere`."""


def rows_of(reports: Sequence[tuple[Reporter, Sequence[Finding]]]) -> list[Row]:
    """Join the findings of all ranks: what many share becomes one row, worst first within each check.

    Green findings of one check are joined even where their texts differ, and the first text stands for all.

    >>> from bertline.doctor.finding import green
    >>> two = [(Reporter(rank=rank, host="a"), [green("cores", f"{rank} free")]) for rank in (0, 1)]
    >>> [(row.finding.found, row.everywhere) for row in rows_of(two)]
    [('0 free', True)]
    """
    size_of_host: dict[str, int] = {}
    for reporter, _ in reports:
        size_of_host[reporter.host] = size_of_host.get(reporter.host, 0) + 1
    checks: dict[str, dict[tuple[Status, str, str], list[tuple[Reporter, Finding]]]] = {}
    for reporter, findings in reports:
        for finding in findings:
            fine = finding.status in ("green", "unused")
            key = (finding.status, "", "") if fine else (finding.status, finding.found, finding.fix)
            checks.setdefault(finding.check, {}).setdefault(key, []).append((reporter, finding))
    rows = []
    for groups in checks.values():
        for key in sorted(groups, key=lambda key: ("red", "note", "green", "unused").index(key[0])):
            reporters = tuple(reporter for reporter, _ in groups[key])
            everywhere = len(groups) == 1
            rows.append(
                Row(
                    finding=groups[key][0][1],
                    reporters=reporters,
                    everywhere=everywhere,
                    where="" if everywhere else _named(reporters, size_of_host),
                )
            )
    return rows


def _named(reporters: Sequence[Reporter], size_of_host: dict[str, int]) -> str:
    """Return the names of hosts all of whose ranks are among these, and of the other ranks."""
    by_host: dict[str, list[int]] = {}
    for reporter in reporters:
        by_host.setdefault(reporter.host, []).append(reporter.rank)
    names = [
        host
        if len(ranks) == size_of_host[host]
        else f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} ({host})"
        for host, ranks in by_host.items()
    ]
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def exit_status(rows: Iterable[Row]) -> int:
    """Return 0 if nothing is red, else 1."""
    return int(any(row.finding.status == "red" for row in rows))


def table(rows: Sequence[Row], *, title: str, took_s: float, width: int, colour: bool) -> str:
    """Format the rows for a terminal: a mark, the check, what was found, and below it the sentence that fixes it.

    Args:
        rows: The rows.
        title: First line.
        took_s: Seconds that all checks took.
        width: Columns; lines are wrapped between words, and no line is longer.
        colour: Whether to colour the marks.
    """
    widest = max((len(row.finding.check) for row in rows), default=0)
    check_width = min(widest, _MOST_CHECK_WIDTH) + 2
    lines = [*_wrapped(title, width), ""]
    shown: dict[str, int] = {}
    for row in rows:
        shown[row.finding.check] = shown.get(row.finding.check, 0) + 1
        if shown[row.finding.check] <= _MOST_ROWS:
            lines += _lines(row, check_width, width, colour=colour)
    hidden = sum(max(0, count - _MOST_ROWS) for count in shown.values())
    if hidden:
        lines.append(f"{'':{_MARK_WIDTH + check_width}}{hidden} more lines of the same checks: see --json")
    return "\n".join([*lines, "", *_wrapped(summary(rows, took_s), width)])


def _lines(row: Row, check_width: int, width: int, *, colour: bool) -> Iterator[str]:
    finding = row.finding
    mark, code = _MARKS[finding.status]
    shown = f"\033[{code}m{mark}\033[0m" if colour else mark
    indent = _MARK_WIDTH + check_width
    room = max(20, width - indent)
    found = f"{row.where}: {finding.found}" if row.where else finding.found
    first, *rest = _wrapped(found, room)
    yield f"{' ' * (_MARK_WIDTH - len(mark) - 1)}{shown} {finding.check:{check_width}}{first}".rstrip()
    for line in rest:
        yield " " * indent + line
    if finding.status in ("red", "note"):
        first, *rest = _wrapped(finding.fix, room - 3)
        for start, line in [("-> ", first), *(("   ", line) for line in rest)]:
            yield " " * indent + start + line


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap a text; a number stays with its unit."""
    kept = _NUMBER_AND_UNIT.sub("\\1\u00a0", text)
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(kept, width, break_on_hyphens=False)] or [""]


def summary(rows: Iterable[Row], took_s: float) -> str:
    """Return the last line: how many of each kind, and the time."""
    counts: dict[Status, int] = dict.fromkeys(_MARKS, 0)
    for row in rows:
        counts[row.finding.status] += 1
    words: dict[Status, str] = {"red": "red", "note": "to note", "green": "ok", "unused": "not used"}
    parts = [f"{counts[status]} {word}" for status, word in words.items() if counts[status]]
    verdict = "Something is red: a run would fail or be damaged" if counts["red"] else "Nothing is red"
    return f"{verdict}. {', '.join(parts)}, in {took_s:.0f} s."


def as_data(rows: Sequence[Row], *, reporters: Sequence[Reporter], took_s: float) -> dict[str, Any]:
    """Return the rows as plain data for programs.

    Returns:
        `ok` (nothing is red), `num_ranks`, `hosts`, `took_s`, and `findings`, each with `check`, `status` (`green`,
        `note`, `red`, `unused`), `found`, `fix`, `measured` (figures by name) and `ranks` (which share it).
    """
    return {
        "ok": exit_status(rows) == 0,
        "num_ranks": len(reporters),
        "hosts": list(dict.fromkeys(reporter.host for reporter in reporters)),
        "took_s": round(took_s, 3),
        "findings": [
            {
                **asdict(row.finding),
                "measured": dict(row.finding.measured),
                "ranks": [one.rank for one in row.reporters],
            }
            for row in rows
        ],
    }
