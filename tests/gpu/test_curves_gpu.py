"""The curve of several GPUs (NCCL) is that of one; tests/processes/test_pretraining.py has it on the CPU."""

import pytest
import torch

from rank_curves import assert_same_curves


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_several_gpus_give_the_curve_of_one(tmp_path, num_ranks):
    if torch.cuda.device_count() < num_ranks:
        pytest.skip(f"needs {num_ranks} GPUs")
    # Sums of fp32 have another order on each number of GPUs, and differences grow over 200 steps.
    assert_same_curves(tmp_path, [num_ranks], {"runtime__device": "cuda"}, rel=5e-3)
