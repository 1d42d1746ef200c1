"""All places where PyTorch 2.13 and Lightning 2.6 have no public interface for what training needs.

`tests/contracts/test_private_api.py` tells when an upgrade changes one of them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:  # prediction needs no Lightning, and no compiler
    import pytorch_lightning as pl
    from torch.nn.parallel import DistributedDataParallel


def leave_sigterm_to_bertline(trainer: pl.Trainer) -> None:
    """Keep Lightning from broadcasting before each step whether SIGTERM arrived, for which every GPU would wait.

    bertline handles the signal itself (`training.interruption`).
    """
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]


def inside_ddp_forward(wrapped: DistributedDataParallel) -> AbstractContextManager[None]:
    """Let the compiler split its graphs in the block as it does within the forward of DDP."""
    return wrapped._inside_ddp_forward()


def cpu_computes_bf16() -> bool:
    """Return whether this CPU has instructions for bf16 products."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def compile_at_least(num_shapes: int) -> None:
    """Let the compiler compile one function for so many shapes before it silently runs the slow path (8 by default)."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, num_shapes)


def name_compiled_kernels() -> None:
    """Make the CPU's compiled kernels appear by name in a profile; without this, a whole compiled graph is one line.

    Call before anything is compiled. It adds markers to the kernels and does not change their arithmetic.
    """
    import torch._inductor.config

    torch._inductor.config.cpp.enable_kernel_profile = True
