"""What bertline relies on in Hydra and OmegaConf."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Two groups that stand under other keys than their own, and an optional local choice that comes last."""
    files = {
        "config.yaml": "defaults: [{model: tiny}, {task@tasks.one: a}, {optional local: default}, _self_]\n",
        "model/tiny.yaml": "size: 1\n",
        "model/base.yaml": "size: 12\n",
        "task/a.yaml": "rows: 1\n",
        "task/b.yaml": "rows: 2\n",
    }
    for name, content in files.items():
        (tmp_path / "conf" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "conf" / name).write_text(content)
    return tmp_path / "conf"


def composed(conf: Path, *overrides: str) -> dict[str, object]:
    with initialize_config_dir(str(conf), version_base=None):
        return OmegaConf.to_container(compose("config", list(overrides)))  # type: ignore[return-value]


def test_hydra_stays_below_1_5_where_dvcs_composition_breaks() -> None:
    assert tuple(map(int, version("hydra-core").split(".")[:2])) < (1, 5)


def test_a_task_is_overridden_by_its_package_and_not_by_its_group(conf: Path) -> None:
    assert composed(conf, "task@tasks.one=b")["tasks"] == {"one": {"rows": 2}}
    with pytest.raises(HydraException):
        composed(conf, "task=b")


def test_a_missing_local_choice_is_no_error_and_a_present_one_wins(conf: Path) -> None:
    assert composed(conf)["model"] == {"size": 1}
    (conf / "local").mkdir()
    (conf / "local" / "default.yaml").write_text("# @package _global_\nmodel: {size: 7}\n")
    assert composed(conf)["model"] == {"size": 7}


def test_without_a_run_folder_a_script_litters_outputs_so_cmd_sets_one(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import hydra\n@hydra.main(version_base=None)\ndef main(config): pass\nmain()\n")
    quiet = ["hydra.run.dir=runs/hydra", "hydra.output_subdir=null"]
    for arguments, littered in ((quiet, False), ([], True)):
        subprocess.run([sys.executable, str(script), *arguments], cwd=tmp_path, check=True)
        assert (tmp_path / "outputs").exists() is littered


def test_pyyaml_reads_1e_4_as_text_so_configuration_is_read_by_omegaconf() -> None:
    assert yaml.safe_load("lr: 1e-4") == {"lr": "1e-4"}
    assert OmegaConf.create("lr: 1e-4").lr == 1e-4
