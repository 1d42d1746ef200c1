from pathlib import Path

import pytest

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
    return TrackingConfig(
        enabled=True,
        uri=uri,
        experiment_name=request.node.name,
        log_text=False,
        studies_url="sqlite:///runs/studies.db",
        system_metrics=False,
        system_metrics_every_s=0.2,
    )


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"
