"""`make install TORCH=keep`: the torch that is there is seen and asked for, wherever it lies."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def checkout(tmp_path):
    """What make reads, alone."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def image(tmp_path):
    """A virtual environment without a package."""
    venv.create(tmp_path / "image", symlinks=True)
    return tmp_path / "image"


def install(checkout, image):
    """As far as it goes without an index: everything but what pip does."""
    variables = {**os.environ, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "PIP_FIND_LINKS"):
        variables.pop(name, None)
    command = ["make", "install", "TORCH=keep", f"PYTHON={image}/bin/python"]
    return subprocess.run(command, cwd=checkout, env=variables, check=False, capture_output=True, text=True)


def test_a_kept_torch_in_a_virtual_environment_is_seen_and_asked_for_as_its_package_is_called(checkout, image):
    """A CUDA build from the package index is called 2.99.0 there, and 2.99.0+cu130 by the module."""
    place = image / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (place / "torch").mkdir()
    (place / "torch" / "__init__.py").write_text('__version__ = "2.99.0+cu130"\n')
    (place / "torch-2.99.0.dist-info").mkdir()
    (place / "torch-2.99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\n")
    install(checkout, image)
    constraints = (checkout / ".venv" / "constraints.txt").read_text().splitlines()
    assert [line for line in constraints if line.startswith("torch==")] == ["torch==2.99.0"]
    code = "import torch; print(torch.__version__)"
    made = [checkout / ".venv" / "bin" / "python", "-I", "-c", code]
    assert subprocess.run(made, check=True, capture_output=True, text=True).stdout == "2.99.0+cu130\n"
