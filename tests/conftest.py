"""Settings of all tests."""

import getpass
import os
import tempfile
from pathlib import Path

import pytest

# What programs keep for the user is kept apart from the user's own: measurements of a machine that runs tests are low.
os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir()) / f"bertline-tests-cache-{getpass.getuser()}")

BROWSER = Path(__file__).parent / "browser"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the browser's tests to `make test-browser`, which names their folder: they run pipelines of their own."""
    named = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    if collection_path == BROWSER and not any(path.is_relative_to(BROWSER) for path in named):
        return True
    return None  # as pytest itself decides
