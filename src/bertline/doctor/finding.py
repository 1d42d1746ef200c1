"""What a check of the doctor found, whether it is as it should be, and the sentence that fixes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["green", "note", "red", "unused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Result of one check on one rank."""

    check: str
    """Name of the check; the same on all ranks."""
    status: Status
    """`note` is advice, `unused` means that the configuration does not need it; only `red` makes the doctor fail."""
    found: str
    fix: str = ""
    """What to do about it; never empty for `red` and `note`."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Figures, for programs; each name ends in its unit."""

    def __post_init__(self) -> None:
        if self.status in ("red", "note") and not self.fix:
            raise ValueError(f"{self.check} is {self.status} ({self.found}), but no sentence says how to fix it")


def green(check: str, found: str, **measured: float) -> Finding:
    """Return a finding that is as it should be."""
    return Finding(check=check, status="green", found=found, measured=measured)


def red(check: str, found: str, fix: str, **measured: float) -> Finding:
    """Return a finding that would stop or damage a run."""
    return Finding(check=check, status="red", found=found, fix=fix, measured=measured)


def note(check: str, found: str, fix: str, **measured: float) -> Finding:
    """Return a finding that works, with advice."""
    return Finding(check=check, status="note", found=found, fix=fix, measured=measured)


def unused(check: str, found: str) -> Finding:
    """Return a finding about something that the configuration does not use."""
    return Finding(check=check, status="unused", found=found)
