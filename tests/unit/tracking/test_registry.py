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
from bertline.tracking.champions import Standing
from bertline.tracking.config import TrackingConfig
from bertline.tracking.mlmodel import FORMAT
from bertline.tracking.tracker import open_tracker
from finished_tasks import finish, texts
from serving_inputs import serving

STANDING = Standing(
    alias="champion",
    data_hash="d" * 64,
    metric="ndcg@10",
    dev=Measured(scores=np.array([0.7, 0.8]), blocks=np.full((2, 3), 0.75), repeatable=False),
    test_score=0.72,
    test_std=0.01,
)


@pytest.fixture(autouse=True)
def this_store(config: TrackingConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", config.uri)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", config.uri)


def test_a_champion_is_loaded_by_its_name_and_answers_as_its_folder_does(
    config: TrackingConfig, tmp_path: Path
) -> None:
    folder = finish("windows", tmp_path).folder
    (folder / "README.md").write_text("---\nlicense: mit\n---\n\n# A model\n\nIt reads texts.\n")
    how = pyfunc.serving_of(folder, pair=False, dataset=("reviews", "artifacts/tasks/reviews"))
    with open_tracker(config, pipeline_key="one", tags={}, params={}) as tracker:
        version = tracker.register("reviewer", folder, alias="current", tags={"a": "b"}, serving=how, standing=STANDING)
        assert tracker.register("reviewer", folder, alias="current", tags={}, serving=how) == version

    loaded = mlflow.pyfunc.load_model("models:/reviewer@champion")
    given = texts(4, seed=1, most=30)
    found = loaded.predict(pd.DataFrame({"text": given}))
    expected = bertline.load(str(folder), device="cpu").predict(given)
    assert found["predicted"].tolist() == [each.label for each in expected]
    np.testing.assert_allclose(found["probability"].tolist(), [each.probability for each in expected], atol=1e-6)

    # The folder is the same for bertline and transformers.
    back = Path(download_artifacts("models:/reviewer@champion", dst_path=str(tmp_path / "back")))
    assert (back / "MLmodel").is_file()
    assert (back / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    transformers.AutoModelForSequenceClassification.from_pretrained(back)


def test_the_card_is_the_description_and_scores_are_linked_to_rows_and_run(
    config: TrackingConfig, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n\n# A model\n\nIt reads texts.\n")
    how = serving(("reviews", "artifacts/tasks/reviews"))
    with open_tracker(config, pipeline_key="one", tags={}, params={}) as tracker:
        tracker.register("scored", tmp_path, alias="current", tags={"a": "b"}, serving=how, standing=STANDING)
    client = MlflowClient(config.uri)
    version = client.get_model_version_by_alias("scored", "champion")
    assert version.description == "# A model\n\nIt reads texts."
    assert client.get_registered_model("scored").description == version.description
    assert version.run_id == tracker.run_id
    # What the experiment's Models tab lists.
    (model,) = client.search_logged_models(experiment_ids=[client.get_run(tracker.run_id).info.experiment_id])
    assert (model.artifact_location, model.source_run_id) == (version.source, tracker.run_id)
    assert str(model.status) == "READY"
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": "scored", "version": int(version.version)}]
    assert model.tags["mlflow.note.content"] == version.description
    found = {metric.key: (metric.value, metric.dataset_name, metric.run_id) for metric in model.metrics}
    assert found == {
        "reviews/dev_ndcg_at_10": (0.75, "reviews", tracker.run_id),
        "reviews/ndcg_at_10": (0.72, "reviews", tracker.run_id),
    }
    run = client.get_run(tracker.run_id)
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    assert [given.dataset.name for given in run.inputs.dataset_inputs] == ["reviews"]


def test_a_champion_of_an_older_format_gives_its_place_to_the_same_model(
    config: TrackingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    how = serving(("reviews", "artifacts/tasks/reviews"))
    with open_tracker(config, pipeline_key="one", tags={}, params={}) as tracker:
        for written in ("an older one", FORMAT, FORMAT):
            monkeypatch.setattr("bertline.tracking.registry.FORMAT", written)
            tracker.register("again", tmp_path, alias="current", tags={}, serving=how, standing=STANDING)
    # By its scores alone, the second version would not be shown to be better.
    assert {alias: str(v) for alias, v in MlflowClient(config.uri).get_registered_model("again").aliases.items()} == {
        "current": "2",
        "champion": "2",
    }


def test_a_long_card_is_cut_at_a_paragraph_and_says_where_the_rest_is(config: TrackingConfig, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    # The heading ends just before the limit.
    parts = ["# A model", *(f"Paragraph {'x' * 90} end." for _ in range(46)), "## Limits", "y" * 500]
    (tmp_path / "README.md").write_text("\n\n".join(parts))
    with open_tracker(config, pipeline_key="one", tags={}, params={}) as tracker:
        tracker.register("long-card", tmp_path, alias="current", tags={}, serving=serving())
    description = MlflowClient(config.uri).get_model_version_by_alias("long-card", "current").description
    assert 4_000 < len(description) <= 5_000
    assert description.endswith("end.\n\n(The whole card is `README.md` among the files.)")


def test_a_model_that_cannot_be_written_is_marked_as_failed(
    config: TrackingConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    unknown = dataclasses.replace(serving(), packages=("no-such-package",))
    with open_tracker(config, pipeline_key="one", tags={}, params={}) as tracker:
        assert tracker.register("failed", tmp_path, alias="current", tags={}, serving=unknown) is None
    assert "failed was not registered" in capsys.readouterr().err
    client = MlflowClient(config.uri)
    (model,) = client.search_logged_models(experiment_ids=[client.get_run(tracker.run_id).info.experiment_id])
    assert str(model.status) == "FAILED"
    assert client.search_model_versions("name = 'failed'") == []
