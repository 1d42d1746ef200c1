"""Passwords, tokens and keys in configurations, which are written to files that git tracks: found,
and refused.

Secrets come from the environment only. A message about one names the key and the variable to use,
never the value.
"""

import configparser
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertline.foundation.errors import ConfigError
from bertline.foundation.mappings import leaves
from bertline.tracking.config import has_credentials, masked

DVC_CONFIG = Path(".dvc/config")
_DVC_SECRETS = frozenset({
    "access_key_id", "account_key", "client_secret", "connection_string", "gdrive_client_secret", "oss_key_id",
    "oss_key_secret", "password", "sas_token", "secret_access_key", "session_token", "token",
})  # fmt: skip
_OWN_MESSAGES = ("tracking.uri", "tracking.studies_url")  # TrackingConfig refuses these with messages of its own
_OF_THE_USER = (".sentences",)  # the user's text may say anything
_VARIABLES = {
    "runtime": "set it in the environment of the command: Slurm passes the environment on to the job",
    "tracking": "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
}
_HUB = (
    "for the Hugging Face hub, set the environment variable HF_TOKEN; for other places, fetch the files first and name "
    "their folder"
)


def refuse_secrets(mapping: Mapping[str, Any]) -> None:
    """Raise a ConfigError that names all keys of a configuration, at any depth, whose value is or
    contains a secret."""
    problems = [
        f"{key} has a password, a token or a key in it, and configurations are written to params.yaml, which git "
        f"tracks. Leave it out here: {_VARIABLES.get(key.partition('.')[0], _HUB)}."
        for key, value in leaves(mapping)
        if key not in _OWN_MESSAGES
        and not key.endswith(_OF_THE_USER)
        and any(is_secret(text) or is_secret(f"{key.rpartition('.')[2]}={text}") for text in _texts(value))
    ]
    if problems:
        raise ConfigError("The configuration is not valid:\n" + "\n".join(f"  - {problem}" for problem in problems))


def refuse_secrets_of_dvc(path: Path = DVC_CONFIG) -> None:
    """Raise a ConfigError if DVC's configuration file, which git tracks, has the credentials of a
    remote."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
    except configparser.Error:
        return  # DVC itself says what is wrong
    for section in parser.sections():
        for option, value in parser.items(section):
            if option in _DVC_SECRETS or is_secret(value):
                raise ConfigError(
                    f"{path}, {section}: {option} has a password, a token or a key in it, and git tracks this file. "
                    "Remove it there, and set the environment variables that DVC reads, such as AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, or use `dvc remote modify --local REMOTE OPTION VALUE`, which writes "
                    ".dvc/config.local, a file outside git. A secret that was committed must be replaced."
                )


def is_secret(text: str) -> bool:
    """Return whether a text contains a password or token, in an address, an assignment or by its
    form.

    >>> is_secret("https://ada:s3cret@example.org/data"), is_secret("export HF_TOKEN=abc"), is_secret("--token=abc")
    (True, True, True)
    >>> is_secret("google-bert/bert-base-uncased"), is_secret("HF_TOKEN=$(cat ~/token)"), is_secret("--key=abc")
    (False, False, False)
    """
    if masked(text) != text:
        return True
    with suppress(ValueError):  # it is no address
        return text.startswith(("http://", "https://")) and has_credentials(text)
    return False


def _texts(value: Any) -> Iterator[str]:
    """Yield a text, or those of a list and of the lists in it."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
