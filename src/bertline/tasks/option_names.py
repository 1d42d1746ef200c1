"""What the keys are called by which a user tells a reader how to read, so that messages name keys that there are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionNames:
    """The keys of whoever calls a reader; None where that caller leaves no choice."""

    format: str | None = None
    encoding: str | None = None
    quoting: str | None = None
    extra_fields: str | None = None


NO_OPTIONS = OptionNames()
