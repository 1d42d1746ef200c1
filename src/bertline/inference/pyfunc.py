"""Exported folders as MLflow models: `mlflow.pyfunc.load_model` and `mlflow models serve` load them through this
module.

The `MLmodel` next to a folder's files (`tracking.mlmodel`) names this module. A request is a table; its columns are
those that `bertline predict` reads from a file, and the columns of the answer are those that it adds.
"""

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bertline.corpus.tables import TableRow
from bertline.foundation.errors import DataError
from bertline.foundation.validation import validate
from bertline.inference.loading import load_folder
from bertline.inference.model import LoadedLinearModel, LoadedModel
from bertline.inference.predict import VectorPredictor
from bertline.inference.row_files import cell
from bertline.kinds.base import FileColumns, InputColumn
from bertline.kinds.predictor import RowPredictor, TaskPredictor
from bertline.kinds.retrieval import Retrieval
from bertline.modeling.families import FAMILIES
from bertline.tracking.mlmodel import Serving, as_mlflow_errors, in_server, refuse_unknown_parts

PAIR_COLUMN, DOCUMENTS_COLUMN = "text_pair", "documents"
PACKAGES = (
    "bm25s",
    "faiss-cpu",
    "numpy",
    "pandas",
    "psutil",
    "pyarrow",
    "pydantic",
    "regex",
    "rich",
    "safetensors",
    "scikit-learn",
    "scipy",
    "tokenizers",
    "torch",
)
"""Packages that loading and predicting import, and that bertline depends on by name."""

_SENTENCES = ("The function returns a list of integers.", "It reads a file.")
_EXAMPLE: dict[str, Any] = {
    "text": " ".join(_SENTENCES),
    PAIR_COLUMN: _SENTENCES[1],
    "question": "What does the function return?",
    "context": " ".join(_SENTENCES),
    "query": "return a list",
    "candidates": list(_SENTENCES),
    DOCUMENTS_COLUMN: list(_SENTENCES),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingSettings:
    """Settings of a loaded model: `model_config` of `mlflow.pyfunc.load_model`; the environment variable
    SERVING_MODEL_CONFIG, as JSON, of `mlflow models serve`."""

    device: str = "auto"
    """Device, as for `bertline.load`."""
    max_request_bytes: int = 1_000_000
    """Maximum size of the texts of a request to a server, in UTF-8. Files of any size are for `bertline predict`."""


class GivenDocuments(TaskPredictor):
    """Retrieval model whose documents come with each query."""

    top_k = 10
    """Number of documents to return per query."""

    def file_inputs(self, columns: FileColumns) -> list[InputColumn]:
        return [*super().file_inputs(columns), InputColumn(DOCUMENTS_COLUMN, "texts")]

    def file_outputs(self, *inputs: list[Any]) -> list[dict[str, Any]]:
        """Return the best of its own documents for each query."""
        outputs = []
        for query, documents in zip(*inputs, strict=True):
            [hits] = self.kind.serve(self, [query], documents, self.top_k)
            ids, scores = [str(hit.number) for hit in hits], [hit.score for hit in hits]
            outputs.append({"document_ids": ids, "scores": scores})
        return outputs


class ServedModel:
    """A model that predicts tables; without a task, it computes the vectors of texts."""

    def __init__(self, model: LoadedModel, settings: ServingSettings) -> None:
        self._settings = settings
        self.predictor: RowPredictor = model.task or VectorPredictor(model)
        if (task := model.task) is not None and isinstance(task.kind, Retrieval):
            self.predictor = GivenDocuments(task.kind, task.calibration, task.model, task.tokenizer)
        # MLflow's server calls from several threads, and encoding temporarily changes a setting of the tokenizer.
        self._one_request = threading.Lock()

    def inputs(self, *, pair: bool) -> list[InputColumn]:
        """Return the columns of a request; `pair` adds the second text of a task of text pairs."""
        return self.predictor.file_inputs(FileColumns(text_pair=PAIR_COLUMN if pair else None))

    def predict(
        self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame | list[dict[str, Any]]:
        """Predict each row of a table. MLflow calls this; errors are MLflow's, with bertline's message.

        A server gets the rows as a list: it would make one of a table, which takes as long as the prediction.

        Args:
            model_input: Columns `inputs`; lists may be arrays.
            params: `top_k` of a retrieval model; `coverage` of a classifier with label sets, 0 for none.

        Raises:
            MlflowException: A column is missing or unknown, a value is null, an empty list or of another type, there
                are no rows or, in a server, the request is too large.
        """
        with as_mlflow_errors(), self._one_request:
            columns = self.inputs(pair=PAIR_COLUMN in model_input.columns)
            values = _values_of(model_input, columns, self._settings.max_request_bytes if in_server() else None)
            predictor = self.predictor
            if isinstance(predictor, GivenDocuments):
                top_k = (params or {}).get("top_k", GivenDocuments.top_k)
                if isinstance(top_k, bool) or not isinstance(top_k, int | np.integer) or top_k < 1:
                    raise DataError(f"top_k is {top_k!r}; expected a whole number, at least 1.")
                predictor.top_k = int(top_k)
            elif isinstance(predictor, TaskPredictor):
                predictor = predictor.covering((params or {}).get("coverage") or None)
            rows = predictor.file_outputs(*values)
        if in_server():
            return rows
        # As objects: pandas would turn a missing number into NaN, which is no JSON.
        return pd.DataFrame(rows, columns=predictor.output_schema().names, dtype=object)


def serving_of(folder: Path, *, dataset: tuple[str, str] | None) -> Serving:
    """Return what MLflow records about the exported folder of a task or of the encoder, with a made-up row as example.
    `dataset`: name of the task and path of its rows; None for the encoder."""
    loaded = load_folder(str(folder), device="cpu")
    model = ServedModel(loaded, ServingSettings())
    predictor, is_linear = model.predictor, isinstance(loaded, LoadedLinearModel)
    is_wrapped = not is_linear and FAMILIES[loaded.encoder.config.family].wrapping is not None
    pair = loaded.task is not None and bool(loaded.task.kind.config.reads_pairs)
    inputs = {str(column.name): column.holds for column in model.inputs(pair=pair)}
    params: dict[str, float] = {"top_k": predictor.top_k} if isinstance(predictor, GivenDocuments) else {}
    if isinstance(predictor, TaskPredictor) and predictor.label_sets is not None:
        params["coverage"] = 0.0
    return Serving(
        loader_module=__name__,
        inputs=inputs,
        outputs=predictor.output_schema(),
        params=params,
        settings=asdict(ServingSettings()),
        example={
            name: _EXAMPLE.get(name, list(_SENTENCES) if holds == "texts" else _SENTENCES[0])
            for name, holds in inputs.items()
        },
        packages=(*PACKAGES, *["transformers"] * is_wrapped),
        dataset=dataset,
    )


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> ServedModel:
    """Load a folder with some values of `ServingSettings`. MLflow calls this by its name.

    Raises:
        MlflowException: The folder is not a complete model, or a setting is wrong.
    """
    refuse_unknown_parts()
    with as_mlflow_errors():
        settings = validate(
            ServingSettings, {**asdict(ServingSettings()), **(model_config or {})}, where="model config"
        )
        return ServedModel(load_folder(path, device=settings.device), settings)


def _values_of(table: pd.DataFrame, columns: list[InputColumn], max_bytes: int | None) -> list[list[Any]]:
    if not len(table):
        raise DataError("the request has no rows; give at least one.")
    names = [str(column.name) for column in columns]  # MLflow has dropped or refused all others
    cells = {name: [_plain(value) for value in table[name]] for name in names if name in table.columns}
    values = (value for column in cells.values() for value in column)
    texts = (text for value in values for text in (value if isinstance(value, list) else [value]))
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts if isinstance(text, str))
    if max_bytes is not None and size > max_bytes:
        raise DataError(
            f"the request has {size:,} bytes of text; at most {max_bytes:,} are served (max_request_bytes). Split it, "
            "or predict a file with bertline predict."
        )
    records = [
        TableRow(f"rows[{number}]", dict(zip(cells, row, strict=True)))
        for number, row in enumerate(zip(*cells.values(), strict=True))
    ]
    for record in records:
        for name, value in record.values.items():
            if value == []:
                raise DataError(f"{record.where}: column {name!r} is an empty list; give at least one text.")
    return [[cell(record, column) for record in records] for column in columns]


def _plain(value: Any) -> Any:
    """Return an array as a list, and pandas' missing values as None."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if value is pd.NA or (isinstance(value, float) and np.isnan(value)) else value
