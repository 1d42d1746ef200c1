"""Tokens per second of 8 to 256 GPUs by the model of `bertline.planning.communication`: on paper, not measured."""

from __future__ import annotations

from typing import Any

import repository_source  # noqa: F401
from bare_configuration import section

from bertline.modeling.config import ModelConfig
from bertline.modeling.flops import num_embedding_parameters, num_encoder_parameters
from bertline.planning.communication import gradient_buckets, step_s
from bertline.planning.interconnect import OVERLAP, computing_of, link_of

VOCAB_SIZE = 30_522
DEVICES = (8, 16, 32, 64, 128, 256)
DEVICES_PER_NODE = 8
NETWORK_GBIT = 400.0
"""Of each GPU, between nodes: one InfiniBand NDR adapter for each, as in NVIDIA's DGX H100."""
STEPS = {"base": (32_768, 0.060), "large": (16_384, 0.090)}
"""Tokens and seconds of a step on one GPU: the input. These are round figures, to be replaced by measured ones."""


def table() -> list[dict[str, Any]]:
    """Return a row for each size and number of GPUs."""
    rows = []
    for size, (tokens, seconds) in STEPS.items():
        model = section(ModelConfig, f"model/{size}")
        buckets = gradient_buckets(
            num_encoder_parameters(model), num_embedding_parameters(model, vocab_size=VOCAB_SIZE)
        )
        for devices in DEVICES:
            link = link_of("h100", devices, devices_per_node=DEVICES_PER_NODE, network_gbit=NETWORK_GBIT)
            step = step_s(computing_of(seconds), buckets, devices, link, overlap=OVERLAP)
            rows.append(
                {
                    "model": size,
                    "gpus": devices,
                    "tokens_per_gpu": tokens,
                    "step_s_of_one": seconds,
                    "step_s": round(step, 4),
                    "share": round(seconds / step, 3),
                    "tokens_per_s": round(devices * tokens / step),
                }
            )
    return rows


def text(rows: list[dict[str, Any]]) -> str:
    """Return the rows for people."""
    title = (
        f"A model, not a measurement: H100 with NVLink, {DEVICES_PER_NODE} a node, {NETWORK_GBIT:g} Gbit/s each "
        "between nodes; the time of a step on one GPU is an input."
    )
    return "\n".join(
        [
            title,
            *(
                f"{row['model']:5} {row['gpus']:4} GPUs: {row['tokens_per_s'] / 1e6:6.2f} M tokens/s, "
                f"{row['share']:.0%} of as many single ones "
                f"({row['tokens_per_gpu']:,} tokens in {row['step_s_of_one']} s)"
                for row in rows
            ),
        ]
    )
