from pathlib import Path

import pytest

import tracking_inputs
from bertline.tracking.config import TrackingConfig
from bertline.tracking.store import Store


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One SQLite store for all tests of the session: making its tables is the slow part."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('tracking') / 'mlflow.db'}"
    Store(uri, "empty")
    return uri


@pytest.fixture
def config(uri: str, request: pytest.FixtureRequest) -> TrackingConfig:
    """A store that is shared, an experiment that is the test's own."""
    return tracking_inputs.tracking(uri, request.node.name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder."""
    path = tmp_path / "runs/pretrain/1ed2"
    path.mkdir(parents=True)
    return path
