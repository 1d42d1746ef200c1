"""Trainings, hardware and texts for tests of the planner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from bertline.foundation.validation import validate
from bertline.modeling.config import ModelConfig
from bertline.planning.config import PlanConfig
from bertline.planning.forecast import Resources, Training
from bertline.planning.hardware import GPUS
from bertline.planning.interconnect import link_of
from bertline.planning.rates import Rates, SpeedRecord
from bertline.planning.text_size import TextSize
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.objectives.mlm_nsp import MlmNsp
from bertline.training.config import RuntimeConfig
from bertline.training.optimizers.registry import OptimizerConfig

CONF = Path(__file__).resolve().parents[2] / "conf"
SIZES = ("tiny", "mini", "small", "medium", "base", "large")
UNKNOWN_TEXT = TextSize(tokens=None, basis="unknown")


def model(size: str, **changes: Any) -> ModelConfig:
    """`model("base", hidden_dropout_prob=0.0)`, as in conf/model."""
    return validate(ModelConfig, {**_content(f"model/{size}"), **changes})


def optimizer(preset: str) -> OptimizerConfig:
    """`optimizer("adamw")`, as in conf/optimizer."""
    section = OmegaConf.create({"optimizer": OmegaConf.load(CONF / f"optimizer/{preset}.yaml")})
    content: Any = OmegaConf.to_container(section, resolve=True)
    chosen: OptimizerConfig = validate(OptimizerConfig, content["optimizer"])  # type: ignore[arg-type]
    return chosen


def training(size: str, *phases: tuple[int, int, int], **changes: Any) -> Training:
    """`training("base", (900, 128, 256), packing="on")`: bf16, 30,522 tokens; steps, length and batch of each phase."""
    of_runtime = {key: value for key, value in changes.items() if key not in Training.__slots__}
    fields = {
        "model": model(size),
        "objective": MlmNsp(kind="mlm_nsp", nsp_weight=1.0),
        "vocab_size": 30_522,
        "mask_prob": 0.15,
        "phases": tuple(PhaseConfig(steps=a, max_length=b, global_batch_size=c) for a, b, c in phases),
        "optimizer": optimizer("adamw"),
        "runtime": validate(RuntimeConfig, {**_runtime(), **of_runtime}),
        "precision": "bf16",
        **{key: value for key, value in changes.items() if key in Training.__slots__},
    }
    return Training(**fields)


def resources(
    device: str,
    *,
    tokens: float | None = None,
    text: TextSize = UNKNOWN_TEXT,
    records: tuple[SpeedRecord, ...] = (),
    num_devices: int = 1,
    precision: Any = "bf16",
) -> Resources:
    """`resources("a100", tokens=4e9)`: nothing is measured but the records."""
    return Resources(
        hardware=GPUS[device],
        num_devices=num_devices,
        rates=Rates(GPUS[device], precision, records),
        link=link_of(device, num_devices, devices_per_node=8, network_gbit=200),
        text=text if tokens is None else TextSize(tokens=tokens, basis="plan.corpus_tokens"),
    )


def asked(**changes: Any) -> PlanConfig:
    """`asked(hours=24)`, the rest as in conf/plan.yaml, of one A100."""
    content = {**_content("plan")["plan"], "num_devices": 1, "device": "a100", **changes}
    return validate(PlanConfig, content, where="plan")


def record(**changes: Any) -> SpeedRecord:
    """BERT-base of 128 tokens on an H200 at 500,000 tokens/s."""
    fields: dict[str, Any] = {
        "file": "pretraining_step_nvidia-h200_base_128.json",
        "device": "NVIDIA H200",
        "precision": "bf16",
        "model": "base",
        "seq_len": 128,
        "dropout": 0.1,
        "threads": 8,
        "tokens_per_s": 500_000.0,
        "flops_per_token": 514_986_984.0,
    }
    return SpeedRecord(**{**fields, **changes})


def _runtime() -> dict[str, Any]:
    content = _content("runtime/default")
    content.pop("defaults")  # Hydra's
    return {**content, "launcher": _content("runtime/launcher/local")}


def _content(name: str) -> dict[str, Any]:
    return OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"), resolve=False)  # type: ignore[return-value]
