"""Errors for people: every message says what was found, what was expected, and how to put it right."""

from __future__ import annotations


class BertlineError(Exception):
    """The base of all errors a user can cause and can mend. Recipes print these without a traceback."""


class ConfigError(BertlineError):
    """A configuration key is unknown, missing, of the wrong type, or breaks a rule."""


class DataError(BertlineError):
    """The user's text or labelled data cannot be used as it is."""


class ArtifactError(BertlineError):
    """A file another stage should have written is missing, torn, or of another format version."""


class MachineError(BertlineError):
    """The machine cannot do what the configuration asks: device, disk, compiler."""
