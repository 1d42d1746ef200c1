"""The table of hardware: what it refuses, and which device a measured record is of."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bertline.foundation.errors import ConfigError
from bertline.planning.hardware import GPUS, gpu_named
from planning_inputs import asked

# As `torch.cuda.get_device_name` says them.
NAMES = {
    "Tesla T4": {"t4"},
    "Tesla V100-SXM2-16GB": {"v100", "v100_32gb"},
    "NVIDIA A10": {"a10"},
    "NVIDIA A10G": {"a10g"},
    "NVIDIA A30": {"a30"},
    "NVIDIA A40": {"a40"},
    "NVIDIA RTX A6000": {"a6000"},
    "NVIDIA RTX 6000 Ada Generation": set(),
    "NVIDIA A100-SXM4-80GB": {"a100", "a100_40gb"},
    "NVIDIA A100-PCIE-40GB": {"a100", "a100_40gb"},
    "NVIDIA L4": {"l4"},
    "NVIDIA L40S": {"l40s"},
    "NVIDIA H100 80GB HBM3": {"h100"},
    "NVIDIA H100 PCIe": {"h100_pcie"},
    "NVIDIA H200": {"h200"},
    "NVIDIA B200": {"b200"},
    "NVIDIA GeForce RTX 3090": {"rtx3090"},
    "NVIDIA GeForce RTX 3090 Ti": set(),
    "NVIDIA GeForce RTX 4090": {"rtx4090"},
    "NVIDIA GeForce RTX 4090 D": set(),
    "NVIDIA GeForce RTX 5090": {"rtx5090"},
}


@pytest.mark.parametrize(("name", "entries"), NAMES.items())
def test_a_device_is_recognised_by_the_name_that_pytorch_gives_and_by_no_other(name: str, entries: set[str]) -> None:
    assert {key for key, one in GPUS.items() if re.search(one.pattern, name)} == entries


def test_every_entry_is_recognised_by_some_name() -> None:
    assert set().union(*NAMES.values()) == set(GPUS)


def test_a_device_may_be_named_in_capitals() -> None:
    assert gpu_named(asked(device="RTX4090").device) is GPUS["rtx4090"]
    assert asked(device="CPU").device == "cpu"


def test_an_unknown_device_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"plan\.device is 'gtx'.*cpu.*t4.*a100.*rtx4090"):
        gpu_named("gtx")


@pytest.mark.parametrize("name", ["t4", "v100", "v100_32gb"])
def test_a_device_without_bf16_trains_in_fp32_and_refuses_bf16(name: str) -> None:
    assert GPUS[name].precision("auto") == "fp32"
    with pytest.raises(ConfigError, match=r"pretrain\.precision is bf16.*no bf16 in hardware"):
        GPUS[name].peak_flops(GPUS[name].precision("bf16"))


def test_auto_is_bf16_where_the_hardware_has_it() -> None:
    assert GPUS["a100"].precision("auto") == "bf16"
    assert GPUS["a100"].peak_flops("bf16") == 312e12
    assert GPUS["a100"].peak_flops(GPUS["a100"].precision("fp32")) == 19.5e12


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hours": 0}, "hours must be above 0"),
        ({"hours": -3.5}, "hours must be above 0"),
        ({"hours": float("inf")}, "hours must be above 0 and finite"),
        ({"num_devices": 0}, "num_devices must be at least 1"),
        ({"device": "cpu", "num_devices": 2}, "device is cpu, this machine: give 1"),
        ({"price_per_hour": -1}, "price_per_hour must not be negative"),
        ({"max_epochs": 0}, "max_epochs must be above 0"),
        ({"corpus_tokens": 0}, "corpus_tokens must be above 0"),
        ({"lengths": []}, "lengths must be numbers of at least 8"),
        ({"hour": 3}, "plan.hour is not a known key. Did you mean hours"),
    ],
)
def test_nonsense_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        asked(**changes)
