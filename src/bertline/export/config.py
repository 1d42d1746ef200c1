"""Configuration of the stage `export`."""

import re
from dataclasses import dataclass
from typing import Literal

from bertline.foundation.checked import Checked, Fraction


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportConfig(Checked):
    """Settings of the exported models."""

    model_name: str
    """Name of the encoder in cards and in MLflow's registry; tasks are registered as NAME-TASK."""
    license: str
    """Licence of the weights for the model card (an SPDX identifier, or `other`)."""
    language: str
    """Language of the text for the model card, as an ISO 639 code."""
    register: bool
    """Whether to register versions in MLflow."""
    alias: str
    """Alias that new versions get."""
    champion_alias: str
    """Alias of a task's best version so far. The first version gets it; a later version gets it if it beats the current
    one on the same data and metric. If scores are not comparable the alias stays, and users move it."""
    logits_tolerance: float
    """Largest absolute difference from transformers' logits that passes the check."""
    onnx: bool
    """Whether to write `onnx/model.onnx` into each folder."""
    onnx_tolerance: float
    """Largest absolute difference of an ONNX file in fp32 from the PyTorch model that passes the check."""
    int8: bool | Literal["vnni"]
    """Whether to also write `onnx/model_int8.onnx`: a quarter of the size, faster on CPUs, slightly different
    outputs. Its weights have 7 bits, which every processor adds up rightly. `vnni` also writes
    `onnx/model_int8_vnni.onnx` with 8 bits for processors with VNNI instructions (`lscpu | grep vnni`)."""
    int8_min_agreement: Fraction
    """Minimum fraction of equal decisions of the int8 file and the PyTorch model (for scores and vectors: Spearman's
    correlation); below it the file is not exported. The check catches broken quantization and is not a quality
    standard: disagreement bounds the loss of accuracy, and sound int8 BERTs lose one or two points (arXiv 1910.06188),
    so disagreement in a tenth of the decisions indicates an error."""
    measure_latency: bool
    """Whether to measure the latency of batches on this machine for the card."""

    def check(self) -> None:
        if self.int8 and not self.onnx:
            raise ValueError(f"int8 is {self.int8} and onnx is false; int8 files are made of it. Set both or none")
        # The name occurs in code, in URLs and, followed by the task, in MLflow's registry.
        if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", self.model_name):
            raise ValueError(
                f"model_name is {self.model_name!r}; it may have letters, digits, '_', '-', '.' and, for the hub, one "
                "'/', as in my-encoder or ada/my-encoder"
            )
        if self.register and "/" in self.model_name:
            raise ValueError(
                f"model_name is {self.model_name!r}, and MLflow registers no name with '/'; leave it out, or set "
                "export.register=false"
            )
        if self.alias == self.champion_alias:
            raise ValueError(f"alias and champion_alias are both {self.alias!r}; the newest is not always the best")
