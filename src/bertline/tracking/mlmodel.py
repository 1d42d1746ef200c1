"""Writer of the files that make a folder an MLflow model: `MLmodel`, input example, requirements.
Imports MLflow.

The folder's own files stay at its root, so transformers, `bertline.load` and MLflow open the same
folder.
"""

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import mlflow.models.utils
import mlflow.pyfunc
import pandas as pd
import pyarrow as pa
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType, Array, Object, Property

from bertline.foundation.errors import BertlineError
from bertline.foundation.files import size_of_path
from bertline.foundation.manifests import versions_of

MLMODEL = "MLmodel"
FORMAT = "pyfunc 1"
"""Changes when the same folder gets other files here, so that it is registered again."""

_Type: TypeAlias = DataType | Array | Object | AnyType
# As lists of strings, MLflow would turn a null inside a list into the text "nan".
_INPUT_TYPES: dict[str, _Type] = {"text": DataType.string, "texts": Array(AnyType()), "text or texts": AnyType()}
_OUTPUT_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): DataType.string,
    pa.int64(): DataType.long,
    pa.float64(): DataType.double,
    pa.float32(): DataType.float,
    pa.bool_(): DataType.boolean,
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Serving:
    """How MLflow loads a folder, and the table that goes in and out."""

    loader_module: str
    """Module with MLflow's function `_load_pyfunc(path, model_config)`; nothing is pickled."""
    inputs: Mapping[str, str]
    """What each column holds: `text`, `texts` (a list) or `text or texts`. All are required."""
    outputs: pa.Schema
    params: Mapping[str, float]
    """Parameters of a request with their defaults."""
    settings: Mapping[str, Any]
    """Settings of the loader with their defaults."""
    example: Mapping[str, Any]
    """A row of inputs, made up: it goes to every tracking server, so it must not be a user's."""
    packages: tuple[str, ...]
    """Packages that the loader needs; their installed versions are pinned."""
    dataset: tuple[str, str] | None = None
    """Name of the task and path of its rows, on which the scores were measured; None without
    scores."""


def write_mlmodel(folder: Path, target: Path, serving: Serving, *, model_id: str, run_id: str) -> None:
    """Copy a folder to `target`, which must not exist, and add the files of an MLflow model."""
    model = Model(model_id=model_id, model_uuid=model_id, run_id=run_id)
    mlflow.pyfunc.save_model(
        path=str(target),
        loader_module=serving.loader_module,
        mlflow_model=model,
        signature=signature_of(serving),
        input_example=pd.DataFrame([dict(serving.example)]),
        pip_requirements=[f"{name}=={version}" for name, version in versions_of("mlflow", *serving.packages).items()],
        model_config=dict(serving.settings),
    )
    shutil.copytree(folder, target, dirs_exist_ok=True)
    model.model_size_bytes = size_of_path(target)
    model.save(str(target / MLMODEL))


def signature_of(serving: Serving) -> ModelSignature:
    """Return MLflow's signature: the columns with their types, and the parameters with their
    defaults."""
    inputs = Schema([ColSpec(_INPUT_TYPES[holds], name) for name, holds in serving.inputs.items()])
    outputs = Schema([ColSpec(_type_of(field.type), field.name) for field in serving.outputs])
    types = {int: DataType.long, float: DataType.double}
    params = ParamSchema([ParamSpec(name, types[type(default)], default) for name, default in serving.params.items()])
    return ModelSignature(inputs, outputs, params if serving.params else None)


def _type_of(column: pa.DataType) -> _Type:
    if pa.types.is_list(column):
        return Array(_type_of(column.value_type))
    if pa.types.is_struct(column):
        return Object([Property(field.name, _type_of(field.type)) for field in column])
    return _OUTPUT_TYPES[column]


_IN_SERVER = "_MLFLOW_IS_IN_SERVING_ENVIRONMENT"
# Beginnings of MLflow's warnings about parts of a request that it is about to drop.
_DROPPED = ("Found extra inputs", "Unrecognized params", "`params` can only be specified")


def in_server() -> bool:
    """Return whether this process is MLflow's scoring server."""
    return os.environ.get(_IN_SERVER, "").lower() == "true"


@contextmanager
def as_mlflow_errors() -> Iterator[None]:
    """Convert bertline's errors to MLflow's, which its server answers with status 400 and their
    message."""
    try:
        yield
    except BertlineError as error:
        raise MlflowException.invalid_parameter_value(str(error)) from None


def refuse_unknown_parts() -> None:
    """In a server, refuse requests with unknown columns or parameters; MLflow drops them with a
    warning.

    A misspelt parameter would be ignored, and a column may be named by a user's text (the first
    line of a CSV without a header), which the warning writes to the log. MLflow's warning is the
    only place that sees them.
    """
    logging.getLogger(mlflow.models.utils.__name__).addFilter(_refuse_dropped)


def _refuse_dropped(record: logging.LogRecord) -> bool:
    """Raise the warning as an error; MLflow answers it like those that it raises itself."""
    message = record.getMessage()
    if in_server() and message.startswith(_DROPPED):
        raise MlflowException.invalid_parameter_value(
            f"{message} The model refuses a request with unknown columns or parameters. Leave them out, or correct "
            "their names."
        )
    return True
