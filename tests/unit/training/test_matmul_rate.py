"""The rate of a large matrix product, which utilisation is measured against."""

import pytest
import torch

from bertline.training import matmul_rate as module
from bertline.training.matmul_rate import hot_matmul_rate

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_WARM_UP_S", 0.0)
    monkeypatch.setattr(module, "_HOT_S", 0.1)


@pytest.mark.parametrize(("precision", "native"), [("fp32", True), ("bf16", False)])
def test_a_product_has_a_rate_and_leaves_the_random_numbers_and_threads_alone(monkeypatch, precision, native):
    monkeypatch.setattr(module, "cpu_computes_bf16", lambda: native)
    threads = torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert 1e7 < hot_matmul_rate(CPU, precision) < 1e15
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
