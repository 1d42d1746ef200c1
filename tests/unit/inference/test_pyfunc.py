"""Exported folders as MLflow models: every kind is loaded, described, asked over HTTP, and refuses what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mlflow.pyfunc
import pandas as pd
import pytest
import transformers
from fastapi.testclient import TestClient
from mlflow.pyfunc import scoring_server

import bertline
import tiny
from bertline.inference import pyfunc
from bertline.inference.model import LoadedModel
from bertline.inference.predict import VectorPredictor
from bertline.tracking.mlmodel import write_mlmodel
from finished_tasks import KINDS, TOKENS, texts

Row = dict[str, Any]
VALUES: dict[str, list[Any]] = {
    "text": texts(5, seed=1, most=30),
    "text_pair": texts(5, seed=2, most=30),
    "question": texts(5, seed=3),
    "context": texts(5, seed=4, most=40),
    "query": texts(5, seed=5),
    "candidates": [texts(count, seed=count) for count in (4, 1, 6, 2, 3)],
    "documents": [texts(count, seed=count) for count in (4, 12, 4, 1, 3)],
}


class Served(NamedTuple):
    """A model as MLflow has it, as a server, and as bertline opens the same folder."""

    folder: Path
    loaded: mlflow.pyfunc.PyFuncModel
    client: TestClient
    model: LoadedModel

    def ask(self, rows: list[Row], **more: Any) -> Any:
        """The answer of the server to some rows."""
        return self.client.post("/invocations", json={"dataframe_records": rows, **more})

    def columns(self) -> list[str]:
        return [str(name) for name in self.loaded.metadata.get_input_schema().input_names()]

    def rows(self) -> list[Row]:
        """Rows that the model takes."""
        columns = self.columns()
        return [{name: VALUES[name][number] for name in columns} for number in range(5)]


Serve = Callable[[str], Served]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, open_task: Callable[[str], Any]) -> Serve:
    @cache
    def get(name: str) -> Served:
        folder = tmp_path_factory.mktemp(name) / "model"
        if name == "encoder":
            source = folder.parent / name
            tiny.write_encoder(source, heads=True, words=TOKENS, initializer_range=0.4, max_position_embeddings=24)
            model = bertline.load(str(source), device="cpu")
        else:
            finished, model = open_task(name)
            source = finished.folder
        serving = pyfunc.serving_of(source, dataset=None)
        write_mlmodel(source, folder, serving, model_id="m-1", run_id="r1")
        loaded = mlflow.pyfunc.load_model(str(folder))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT", "true")  # `init` sets it for good
            client = TestClient(scoring_server.init(loaded))
        return Served(folder, loaded, client, model)

    return get


@pytest.fixture
def in_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT", "true")


def expected(model: LoadedModel, rows: list[Row]) -> list[Row]:
    """What a file of the same rows gets; a search has documents of its own for each query."""
    inputs = [[row[name] for row in rows] for name in rows[0]]
    if model.kind == "retrieval":
        hits = [model.predict([row["query"]], row["documents"])[0] for row in rows]
        return [{"document_ids": [str(h.number) for h in of], "scores": [h.score for h in of]} for of in hits]
    return (model.task or VectorPredictor(model)).file_outputs(*inputs)


def assert_close(found: list[Row], wanted: list[Row]) -> None:
    """Equal, but for lists of numbers, which depend a little on what is computed together."""
    assert [list(row) for row in found] == [list(row) for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        for name, value in other.items():
            assert one[name] == (pytest.approx(value, abs=1e-6) if name in ("scores", "vector") else value)


@pytest.mark.parametrize("name", [*KINDS, "encoder"])
def test_a_model_answers_as_predict_does_and_predicts_its_example(
    served: Serve, name: str, in_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = served(name)
    rows = it.rows()
    answer = it.ask(rows)
    assert answer.status_code == 200, answer.text
    assert_close(answer.json()["predictions"], expected(it.model, rows))
    split = {"columns": it.columns(), "data": [list(row.values()) for row in rows]}
    assert it.client.post("/invocations", json={"dataframe_split": split}).json() == answer.json()

    serving_example = json.loads((it.folder / "serving_input_example.json").read_text())
    assert it.client.post("/invocations", json=serving_example).status_code == 200

    monkeypatch.delenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT")
    signature = it.loaded.metadata.signature
    assert signature.outputs.input_names() == list(answer.json()["predictions"][0])
    example = it.loaded.input_example
    assert list(example.columns) == it.columns()
    assert_close(it.loaded.predict(example).to_dict("records"), expected(it.model, example.to_dict("records")))


def test_a_folder_stays_one_of_transformers_and_holds_no_pickle(served: Serve) -> None:
    folder = served("classification").folder
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    assert model.config.num_labels == 3
    transformers.AutoTokenizer.from_pretrained(folder)
    assert bertline.load(str(folder), device="cpu").labels == ("low", "mid", "high")
    assert {path.suffix for path in folder.iterdir()} <= {"", ".json", ".txt", ".yaml", ".safetensors"}
    flavors = served("classification").loaded.metadata.flavors
    assert list(flavors) == ["python_function"]
    assert flavors["python_function"]["loader_module"] == "bertline.inference.pyfunc"
    assert not {"python_model", "data"} & flavors["python_function"].keys()


WRONG: dict[str, tuple[str, Any, str]] = {
    "a missing column": ("classification", [{"text": "secret"}], r"missing inputs \['text_pair'\]"),
    "an unknown column": (
        "windows", [{"text": "secret", "secret colour": "secret"}], r"`\['secret colour'\]`.* unknown columns",
    ),
    "a pair for single texts": ("windows", [{"text": "secret", "text_pair": "secret"}], "text_pair.* unknown columns"),
    "a null": ("windows", [{"text": "secret"}, {"text": None}], r"rows\[1\]: column 'text' is None; expected a text"),
    "no rows": ("windows", [], "missing inputs|no rows"),
    "an empty list of candidates": (
        "reranking", [{"query": "secret", "candidates": ["secret"]}, {"query": "secret", "candidates": []}],
        r"rows\[1\]: column 'candidates' is an empty list; give at least one text",
    ),
    "a null among candidates": (
        "reranking", [{"query": "secret", "candidates": ["secret", None]}],
        r"rows\[0\]: column 'candidates' is .*; expected a list of texts",
    ),
    "half a character in a list": (
        "reranking", [{"query": "secret", "candidates": ["secret\ud800"]}],
        r"rows\[0\]: column 'candidates': it has '.ud800', which is half of a character",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.usefixtures("in_server")
def test_a_wrong_request_is_answered_with_a_named_error_and_logged_without_text(
    served: Serve, case: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    name, rows, message = WRONG[case]
    content, headers = json.dumps({"dataframe_records": rows}), {"Content-Type": "application/json"}
    answer = served(name).client.post("/invocations", content=content, headers=headers)
    assert answer.status_code == 400
    assert re.search(message, answer.json()["message"], flags=re.DOTALL), answer.json()["message"]
    assert answer.json()["error_code"] in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
    assert "secret" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.usefixtures("in_server")
def test_a_csv_without_a_header_does_not_put_its_first_text_into_the_log(
    served: Serve, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    client = served("windows").client
    for content in ("a secret\nanother\n", "text,a secret\nword1,word2\n"):
        answer = client.post("/invocations", content=content, headers={"Content-Type": "text/csv"})
        assert answer.status_code == 400 and "a secret" in answer.json()["message"]
    assert "secret" not in caplog.text + "".join(capfd.readouterr())
    good = client.post("/invocations", content="text\nword1 word2\n", headers={"Content-Type": "text/csv"})
    assert good.status_code == 200


@pytest.mark.usefixtures("in_server")
def test_a_body_that_is_too_large_is_refused_before_it_is_predicted(
    served: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = served("windows")
    monkeypatch.setattr(type(it.model.task), "file_outputs", lambda *_: pytest.fail("predicted"))
    answer = it.ask([{"text": "é" * 500_001}])
    assert answer.status_code == 400 and len(answer.text) < 2_000
    assert "has 1,000,002 bytes of text; at most 1,000,000 are served" in answer.json()["message"]


def test_requests_at_once_are_answered_as_one_by_one(served: Serve) -> None:
    it = served("cased")
    tables = [pd.DataFrame({"text": texts(3, seed=seed, most=30)}) for seed in range(12)]
    one_by_one = [it.loaded.predict(table).to_dict("records") for table in tables]
    with ThreadPoolExecutor(4) as pool:
        at_once = [found.to_dict("records") for found in pool.map(it.loaded.predict, tables)]
    assert at_once == one_by_one
