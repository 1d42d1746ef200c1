"""What a profile of a few steps writes."""

import torch

from bertline.pretraining.profiling import TABLE_NAME, StepProfiler
from bertline.training.private_api import name_compiled_kernels

CPU = torch.device("cpu")


@torch._inductor.config.patch({"cpp.enable_kernel_profile": False})  # put back afterwards
def test_compiled_kernels_appear_by_name_and_compute_the_same(tmp_path):
    def normalised(rows):
        return torch.nn.functional.gelu(rows - rows.mean(-1, keepdim=True)).softmax(-1)

    rows = torch.randn(64, 200)
    expected = torch.compile(normalised)(rows)
    torch._dynamo.reset()
    name_compiled_kernels()
    compiled = torch.compile(normalised)
    assert torch.equal(compiled(rows), expected)
    profiler = StepProfiler(tmp_path / "profile", CPU, num_steps=2)
    profiler.start()
    for _ in range(3):
        compiled(rows)
        profiler.step()
    assert "cpp_fused" in (tmp_path / "profile" / TABLE_NAME).read_text()
