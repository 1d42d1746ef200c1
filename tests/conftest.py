"""Settings of all tests."""

import errno
import gc
import getpass
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# No bound of time: a busy machine would break it.
settings.register_profile("bertline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bertline")

# Test modules and the libraries that they import remain until the end: looking through them for garbage is 11 s of
# processor time out of 27 of a collection, in each process. `pytest_collection_finish` ends it.
gc.disable()

# What programs keep for the user is kept apart from the user's own: measurements of a machine that runs tests are low.
os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir()) / f"bertline-tests-cache-{getpass.getuser()}")

# Left to `make test-browser` and `make test-slurm`, which name their folders: they need programs of their own.
APART = [Path(__file__).parent / name for name in ("browser", "slurm")]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders of `APART` where the command does not name them."""
    named = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    if collection_path in APART and not any(path.is_relative_to(collection_path) for path in named):
        return True
    return None  # as pytest itself decides


def pytest_collection_finish() -> None:
    """Collect garbage again, but never look through what was collected for tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP], ids=["ENOLCK", "EOPNOTSUPP"])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks, as some mounts of Lustre and NFS."""

    def refuse(handle: Any, operation: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr("fcntl.flock", refuse)
