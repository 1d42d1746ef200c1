"""The built wheel in an empty folder: what works without a clone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, in which a person has a choice of her own."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "local")
    for name in ("src", "conf"):
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignored)
    (checkout / "conf/local").mkdir()
    (checkout / "conf/local/default.yaml").write_text("optimizer: {lr: 1}\n")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", folder, checkout], check=True, capture_output=True, text=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; all other packages are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    place = subprocess.run([python, "-c", show], check=True, capture_output=True, text=True).stdout.strip()
    Path(place, "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True, text=True)
    return folder / "bin"


def bertline(programs: Path, folder: Path, *arguments: str) -> str:
    """What the command prints."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [programs / "bertline", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_carries_the_whole_configuration_and_no_choice_of_a_person(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    conf = {path.relative_to(ROOT).as_posix() for path in (ROOT / "conf").rglob("*.yaml") if "local" not in path.parts}
    assert {f"bertline/{name}" for name in conf} == {name for name in names if name.startswith("bertline/conf/")}
    templates = {"bertline/evaluation/templates/style.css", "bertline/export/templates/card.md"}
    assert {"hydra_plugins/bertline_resolvers.py", "bertline/py.typed", *templates} <= names


def test_a_checkpoint_is_tried_fine_tuned_and_applied_in_an_empty_folder(programs: Path, tmp_path: Path) -> None:
    checkpoint = tiny.write_encoder(tmp_path / "checkpoint", heads=True)
    folder = tmp_path / "empty"
    folder.mkdir()
    assert "model: " in bertline(programs, folder, "try", f"model_folder={checkpoint}", "text=the [MASK]")
    rows = [f"the {('cat', 'dog')[i % 2]} {i},{'ab'[i % 2]}" for i in range(80)]
    (folder / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    quick = ("seeds=1", "sweep.fine_tuning.num_epochs=1", "max_length=16")
    printed = bertline(programs, folder, "finetune", "data=rows.csv", f"start_from={checkpoint}", *quick)
    result = json.loads(printed.splitlines()[-1])
    assert Path(result["report"]).is_file()
    (folder / "texts.txt").write_text("the cat\nthe dog\n")
    model = f"model_folder={result['export']}"
    bertline(programs, folder, "predict", model, "input=texts.txt", "output=out.jsonl")
    assert len((folder / "out.jsonl").read_text().splitlines()) == 2
    assert {path.name for path in folder.iterdir()} == {"rows.csv", "texts.txt", "out.jsonl", "runs"}


def test_the_notebook_of_own_rows_runs_with_nothing_but_the_wheel(programs: Path, tmp_path: Path) -> None:
    cells = json.loads((ROOT / "notebooks/05-your-own-rows.ipynb").read_text(encoding="utf-8"))["cells"]
    lines = [line.rstrip("\n") for cell in cells if cell["cell_type"] == "code" for line in [*cell["source"], ""]]
    code = "\n".join(line for line in lines if not line.startswith("%"))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "TMPDIR": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    absent = "import sys; sys.modules |= dict.fromkeys(('IPython', 'ipykernel', 'nbformat', 'pytest'))\n"
    done = subprocess.run(
        [programs / "python", "-c", absent + code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "On topic the encoder" in done.stdout and " made wrong are among them" in done.stdout
    assert {path.name for path in next(tmp_path.glob("tmp*")).iterdir()} == {"docs.csv", "random-encoder", "runs"}
