"""Compiled kernels in a profile."""

import torch

from bertline.training.private_api import name_compiled_kernels


@torch._inductor.config.patch({"cpp.enable_kernel_profile": False})  # put back afterwards
def test_compiled_kernels_appear_by_name_and_compute_the_same():
    def normalised(rows):
        return torch.nn.functional.gelu(rows - rows.mean(-1, keepdim=True)).softmax(-1)

    rows = torch.randn(64, 200)
    expected = torch.compile(normalised)(rows)
    torch._dynamo.reset()
    name_compiled_kernels()
    compiled = torch.compile(normalised)
    assert torch.equal(compiled(rows), expected)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        compiled(rows)
    assert any("cpp_fused" in event.key for event in recorded.key_averages())
