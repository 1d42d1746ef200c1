"""Writer of the files that make a folder an MLflow model: `MLmodel`, input example, requirements. Imports MLflow.

The folder's own files stay at its root, so transformers, `bertline.load` and MLflow open the same folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TypeAlias

import mlflow.pyfunc
import pandas as pd
import pyarrow as pa
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType, Array, Object, Property

from bertline.foundation.files import size_of_path
from bertline.foundation.manifests import versions_of
from bertline.tracking.serving import Serving

MLMODEL = "MLmodel"
FORMAT = "pyfunc 1"
"""Changes when the same folder gets other files here, so that it is registered again."""

_Type: TypeAlias = DataType | Array | Object | AnyType
# As lists of strings, MLflow would turn a null inside a list into the text "nan".
_INPUT_TYPES: dict[str, _Type] = {
    "text": DataType.string,
    "texts": Array(AnyType()),
    "text or texts": AnyType(),
}
_OUTPUT_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): DataType.string,
    pa.int64(): DataType.long,
    pa.float64(): DataType.double,
    pa.float32(): DataType.float,
    pa.bool_(): DataType.boolean,
}


def write_mlmodel(folder: Path, target: Path, serving: Serving, *, model_id: str, run_id: str) -> None:
    """Copy a folder to `target`, which must not exist, and add the files of an MLflow model.

    Args:
        folder: Exported folder.
        target: Folder to write.
        serving: How the folder is loaded, and its inputs and outputs.
        model_id: Id of the logged model that the files belong to.
        run_id: Run that made the folder.
    """
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
    """Return MLflow's signature: the columns with their types, and the parameters with their defaults."""
    inputs = Schema([ColSpec(_INPUT_TYPES[holds], name) for name, holds in serving.inputs.items()])
    outputs = Schema([ColSpec(_type_of(field.type), field.name) for field in serving.outputs])
    params = ParamSchema([ParamSpec(name, DataType.long, default) for name, default in serving.params.items()])
    return ModelSignature(inputs, outputs, params if serving.params else None)


def _type_of(column: pa.DataType) -> _Type:
    if pa.types.is_list(column):
        return Array(_type_of(column.value_type))
    if pa.types.is_struct(column):
        return Object([Property(field.name, _type_of(field.type)) for field in column])
    return _OUTPUT_TYPES[column]
