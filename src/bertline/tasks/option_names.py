"""Names of the configuration keys that control a reader, so that messages name the keys of the caller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionNames:
    """Configuration keys of a reader's caller; None for what the caller does not let the user choose."""

    format: str | None = None
    encoding: str | None = None
    quoting: str | None = None
    extra_fields: str | None = None


NO_OPTIONS = OptionNames()
