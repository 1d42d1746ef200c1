"""The optimizers: a new one is a file of `training/optimizers` and a line here."""

from __future__ import annotations

from bertline.training.optimizers.adamw import AdamWConfig
from bertline.training.optimizers.lamb import LambConfig
from bertline.training.optimizers.muon import MuonConfig

OptimizerConfig = AdamWConfig | LambConfig | MuonConfig
