"""User-facing errors: every message names what was found, what was expected, and how to fix it."""


class BertlineError(Exception):
    """Base class of all errors that a user can cause and fix. Recipes print them without a
    traceback."""


class ConfigError(BertlineError):
    """A configuration key is unknown, missing, of the wrong type, or has an invalid value."""


class DataError(BertlineError):
    """The user's text or labelled data is invalid."""


class ArtifactError(BertlineError):
    """A file that another stage should have written is missing, damaged, or has another format
    version."""


class MachineError(BertlineError):
    """The machine cannot run the configuration: device, disk, compiler."""


class PeerLostError(MachineError):
    """Another process of a training was killed, stopped or cut off; what was saved is whole, and
    can be resumed."""
