"""Errors of requests to a model that MLflow serves: named for the client, without text in the server's log.

Imports MLflow.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow.models.utils
from mlflow.exceptions import MlflowException

from bertline.foundation.errors import BertlineError

_IN_SERVER = "_MLFLOW_IS_IN_SERVING_ENVIRONMENT"
# Beginnings of MLflow's warnings about parts of a request that it is about to drop.
_DROPPED = ("Found extra inputs", "Unrecognized params", "`params` can only be specified")


def in_server() -> bool:
    """Return whether this process is MLflow's scoring server."""
    return os.environ.get(_IN_SERVER, "").lower() == "true"


@contextmanager
def named_errors() -> Iterator[None]:
    """Convert bertline's errors to MLflow's, which its server answers with status 400 and their message."""
    try:
        yield
    except BertlineError as error:
        raise MlflowException.invalid_parameter_value(str(error)) from None


def refuse_unknown_parts() -> None:
    """In a server, refuse requests with unknown columns or parameters; MLflow drops them with a warning.

    A misspelt parameter would be ignored, and a column may be named by a user's text (the first line of a CSV without a
    header), which the warning writes to the log. MLflow's warning is the only place that sees them.
    """
    logger = logging.getLogger(mlflow.models.utils.__name__)
    if not any(isinstance(known, _RefuseDropped) for known in logger.filters):
        logger.addFilter(_RefuseDropped())


class _RefuseDropped(logging.Filter):
    """Raises the warning as an error; MLflow answers it like those that it raises itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if in_server() and message.startswith(_DROPPED):
            raise MlflowException.invalid_parameter_value(
                f"{message} The model refuses a request with unknown columns or parameters. Leave them out, or correct "
                "their names."
            )
        return True
