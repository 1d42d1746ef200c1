"""Configuration of the export stage."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportConfig:
    """What leaves the house."""

    model_name: str
    """Name of the encoder in cards and in MLflow's registry; tasks are registered as NAME-TASK."""
    license: str
    """Of the weights, for the model card (an SPDX identifier, or `other`)."""
    language: str
    register: bool
    """Register versions in MLflow."""
    alias: str
    """The alias the new versions get."""
    champion_alias: str
    """The alias of a task's best version so far. The first version gets it, and a later one by beating that one on the
    same data and by the same metric; where scores cannot be compared it stays, and people move it."""
    logits_tolerance: float
    """Largest absolute difference from transformers' logits that passes the check."""
    onnx: bool
    """Write `onnx/model.onnx` into each folder."""
    onnx_tolerance: float
    """Largest absolute difference of an ONNX file in fp32 from the PyTorch model that passes the check."""
    int8: bool
    """Also write `onnx/model_int8.onnx`: a quarter of the size, faster on CPUs, not quite the same numbers."""
    int8_min_agreement: float
    """Share of decisions (for scores and vectors: Spearman's correlation) that the int8 file must have in common with
    the original; below it the file is left out. It is there to catch quantisation that went wrong, not to set a
    standard: disagreement bounds the accuracy that can be lost, and sound int8 BERTs lose a point or two
    (arXiv 1910.06188), so that a tenth of the decisions says something is broken."""
    measure_latency: bool
    """Measure how long a batch takes on this machine, for the card."""

    def __post_init__(self) -> None:
        if self.int8 and not self.onnx:
            raise ValueError("int8 is true and onnx is false; the int8 file is made of the other. Set both or none")
        if not 0 <= self.int8_min_agreement <= 1:
            raise ValueError(f"int8_min_agreement must be between 0 and 1, found {self.int8_min_agreement}")
        # The name is used in code, in URLs and, followed by the task, in MLflow's registry.
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
