"""What bertline relies on in Hydra and OmegaConf."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import yaml
from omegaconf import OmegaConf


def test_hydra_stays_below_1_5_where_dvcs_composition_breaks() -> None:
    assert tuple(map(int, version("hydra-core").split(".")[:2])) < (1, 5)


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
