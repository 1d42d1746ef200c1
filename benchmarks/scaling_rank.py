"""One process of scaling.py: bertline's encoder under DDP over gloo; lines on standard input ask for measurements."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import warnings
from contextlib import nullcontext
from typing import Any

import repository_source  # noqa: F401
import torch
import torch.distributed as dist
from bare_configuration import section
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bertline.modeling.bert import BertForMaskedLM
from bertline.modeling.config import ModelConfig
from bertline.modeling.losses import masked_lm_loss_sum


class Loss(nn.Module):
    """The model with the loss of masked words, as one module that DDP wraps."""

    def __init__(self, model: BertForMaskedLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Return the mean loss of predicting what stands at the positions [B, P] of `input_ids` [B, S]."""
        output = self.model(input_ids, torch.zeros_like(input_ids), None, positions)
        loss, targets = masked_lm_loss_sum(output.mlm_logits, input_ids.gather(1, positions))
        return loss / targets


class Rank:
    """A model, its optimizer and one batch."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")
        dist.init_process_group("gloo", rank=settings["rank"], world_size=settings["ranks"])
        torch.manual_seed(0)
        vocab_size = settings["vocab_size"]
        config = section(ModelConfig, f"model/{settings['model']}")
        loss = Loss(BertForMaskedLM(config, vocab_size=vocab_size, pad_token_id=0))
        self.num_weights = sum(weight.numel() for weight in loss.parameters())
        self.module = DistributedDataParallel(
            loss, broadcast_buffers=False, gradient_as_bucket_view=True, bucket_cap_mb=settings["bucket_mb"]
        )
        self.optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-4)
        rows, length = settings["sequences"], settings["length"]
        self.batch = torch.randint(5, vocab_size, (rows, length)), torch.randint(0, length, (rows, length // 7))

    def buckets(self) -> list[int]:
        """Return the bytes of DDP's buckets, in the order in which they become ready; a step must have been taken."""
        text = self.module._get_ddp_logging_data()["rebuilt_bucket_sizes"]
        return [int(size) for size in text.split(",")]

    def step_s(self, number: int, *, synchronize: bool) -> float:
        """Return the median seconds of a step; without synchronizing, of computing alone."""
        times = []
        for _ in range(number):
            dist.barrier()
            started = time.perf_counter()
            with nullcontext() if synchronize else self.module.no_sync():
                self.module(*self.batch).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    def measured(self, number: int) -> dict[str, float]:
        """Return the times of one round; a first step after the pause does not count."""
        self.step_s(1, synchronize=True)
        return {"step_s": self.step_s(number, synchronize=True), "computing_s": self.step_s(number, synchronize=False)}


def main() -> None:
    """Answer each line, a number of steps, with a line of JSON; end with the input."""
    settings = json.loads(sys.stdin.readline())
    rank = Rank(settings)
    rank.step_s(3, synchronize=True)
    print(json.dumps({"gradient_bytes": 4 * rank.num_weights, "buckets": rank.buckets()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(rank.measured(int(line))), flush=True)
    os._exit(0)  # peers that have ended make the shutdown of gloo wait


if __name__ == "__main__":
    main()
