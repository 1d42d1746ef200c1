"""A registered model: loaded by its name and alias, described by its card, with scores linked to rows and run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
import transformers
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

import bertline
from bertline.foundation.verdicts import Measured
from bertline.inference import pyfunc
from bertline.tracking.config import TrackingConfig
from bertline.tracking.registry import Registration, Standing, register
from bertline.tracking.store import Store
from bertline.tracking.tracked_runs import PIPELINE_KEY_TAG, write_tracked_runs
from finished_tasks import finish, texts
from tracking_inputs import record, serving

STANDING = Standing(
    alias="champion",
    data_hash="d" * 64,
    metric="ndcg@10",
    dev=Measured(scores=np.array([0.7, 0.8]), blocks=np.full((2, 3), 0.75), repeatable=False),
    test_score=0.72,
    test_std=0.01,
)


@pytest.fixture(autouse=True)
def this_store(config: TrackingConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of the test, and a run folder of the stage that registers."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", config.uri)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", config.uri)
    write_tracked_runs(folder, record(config, pipeline="one"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder to register."""
    path = tmp_path / "encoder"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


def run_id(config: TrackingConfig) -> str:
    """The run of the pipeline."""
    (run,) = Store(config.uri, config.experiment_name).find_runs({PIPELINE_KEY_TAG: "one"})
    return str(run.info.run_id)


def test_a_champion_is_loaded_by_its_name_and_answers_as_its_folder_does(folder: Path, tmp_path: Path) -> None:
    model = finish("windows", tmp_path).folder
    (model / "README.md").write_text("---\nlicense: mit\n---\n\n# A model\n\nIt reads texts.\n")
    how = pyfunc.serving_of(model, dataset=("reviews", "artifacts/tasks/reviews"))
    scored = Registration(alias="current", tags={"a": "b"}, serving=how, standing=STANDING)
    version = register(folder, "reviewer", model, scored)
    assert register(folder, "reviewer", model, Registration(alias="current", tags={}, serving=how)) == version

    loaded = mlflow.pyfunc.load_model("models:/reviewer@champion")
    given = texts(4, seed=1, most=30)
    found = loaded.predict(pd.DataFrame({"text": given}))
    expected = bertline.load(str(model), device="cpu").predict(given)
    assert found["predicted"].tolist() == [each.label for each in expected]
    np.testing.assert_allclose(found["probability"].tolist(), [each.probability for each in expected], atol=1e-6)

    # The folder is the same for bertline and transformers.
    back = Path(download_artifacts("models:/reviewer@champion", dst_path=str(tmp_path / "back")))
    assert (back / "MLmodel").is_file()
    assert (back / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    transformers.AutoModelForSequenceClassification.from_pretrained(back)


def test_the_card_is_the_description_and_scores_are_linked_to_rows_and_run(
    config: TrackingConfig, folder: Path, model: Path
) -> None:
    (model / "README.md").write_text("---\nlicense: mit\n---\n\n# A model\n\nIt reads texts.\n")
    how = serving(("reviews", "artifacts/tasks/reviews"))
    register(folder, "scored", model, Registration(alias="current", tags={"a": "b"}, serving=how, standing=STANDING))
    client = MlflowClient(config.uri)
    version = client.get_model_version_by_alias("scored", "champion")
    assert version.description == "# A model\n\nIt reads texts."
    assert client.get_registered_model("scored").description == version.description
    assert version.run_id == run_id(config)
    # What the experiment's Models tab lists.
    (model,) = client.search_logged_models(experiment_ids=[client.get_run(run_id(config)).info.experiment_id])
    assert (model.artifact_location, model.source_run_id) == (version.source, run_id(config))
    assert str(model.status) == "READY"
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": "scored", "version": int(version.version)}]
    assert model.tags["mlflow.note.content"] == version.description
    found = {metric.key: (metric.value, metric.dataset_name, metric.run_id) for metric in model.metrics}
    assert found == {
        "reviews/dev_ndcg_at_10": (0.75, "reviews", run_id(config)),
        "reviews/ndcg_at_10": (0.72, "reviews", run_id(config)),
    }
    run = client.get_run(run_id(config))
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    assert [given.dataset.name for given in run.inputs.dataset_inputs] == ["reviews"]


def test_a_model_that_cannot_be_written_has_no_version(
    config: TrackingConfig, folder: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = dataclasses.replace(serving(), packages=("no-such-package",))
    assert register(folder, "failed", model, Registration(alias="current", tags={}, serving=unknown)) is None
    assert "failed was not registered" in capsys.readouterr().err
    assert MlflowClient(config.uri).search_model_versions("name = 'failed'") == []
