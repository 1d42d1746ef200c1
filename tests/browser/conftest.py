"""A small pipeline with its pages: the report, the MLflow UI with `make ui`, the documentation, in Chromium.

Skipped, with the reason, where Playwright or Chromium is missing: `make test-browser` installs the first, Debian's
package `chromium` is the second.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import smoke
from browsing import Visit, opened
from ports import free_port

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
Open = Callable[..., Visit]

# MLflow 3.17's own: its server without users has no current user, and a table that resizes itself tells the console so.
NOT_OURS = (r"^404 http://127\.0\.0\.1:\d+/ajax-api/2\.0/mlflow/users/current$", r"^(null )?ResizeObserver loop")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make test-browser")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with api.sync_playwright() as started:
        # Containers often forbid the namespaces that its sandbox needs, and have little shared memory.
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """`visit(address, width=1400)`: the page, opened in a fresh browser profile; what it asked for is checked at the
    end of the test."""
    visits: list[Visit] = []

    def at(address: str, *, width: int = 1400, **settings: Any) -> Visit:
        visits.append(opened(browser, address, width=width, **settings))
        return visits[-1]

    yield at
    for each in visits:
        each.page.context.close()
        assert each.beyond_loopback == []
        assert each.failed == []
        assert each.errors == []


@pytest.fixture
def review(visit: Open) -> Open:
    """`review(address)`: a page of MLflow, of whose errors only ours count."""
    return functools.partial(visit, not_ours=NOT_OURS)


@pytest.fixture(scope="session")
def finished(browser: Any, smoke_pipeline: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the finished pipeline for all tests of pages."""
    return shutil.copytree(smoke_pipeline, tmp_path_factory.mktemp("browser") / "pipeline", symlinks=True)


@pytest.fixture(scope="session")
def views(finished: Path) -> Iterator[dict[str, str]]:
    """Addresses that `make ui` prints, by title; its server runs."""
    command = [sys.executable, "-m", "bertline", "ui", f"port={free_port()}"]
    with subprocess.Popen(
        command, cwd=finished, env=smoke.environment(finished), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        found = {}
        while not (line := server.stdout.readline()).startswith("("):
            assert line, "make ui ended"
            if "  http://" in line:
                title, address = line.split("  http://")
                found[title.strip()] = f"http://{address.strip()}"
        try:
            yield found
        finally:
            server.terminate()


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """`serve(folder)`: the address of a folder on the loopback address."""
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(served(folder))


@pytest.fixture(scope="session")
def documentation(browser: Any, serve: Callable[[Path], str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of the built documentation."""
    built = tmp_path_factory.mktemp("docs")
    subprocess.run([sys.executable, "-m", "sphinx", "-q", str(ROOT / "docs"), str(built)], cwd=ROOT, check=True)
    return serve(built)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on the loopback address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass
