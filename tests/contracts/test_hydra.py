"""What bertline relies on in Hydra and OmegaConf."""

from __future__ import annotations

from importlib.metadata import version

import yaml
from omegaconf import OmegaConf


def test_hydra_stays_below_1_5_where_dvcs_composition_breaks() -> None:
    assert tuple(map(int, version("hydra-core").split(".")[:2])) < (1, 5)


def test_pyyaml_reads_1e_4_as_text_so_configuration_is_read_by_omegaconf() -> None:
    assert yaml.safe_load("lr: 1e-4") == {"lr": "1e-4"}
    assert OmegaConf.create("lr: 1e-4").lr == 1e-4
