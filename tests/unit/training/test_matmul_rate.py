"""The rate of a large matrix product, which utilisation is measured against."""

import time

import pytest
import torch

from bertline.training import matmul_rate as module
from bertline.training.matmul_rate import matmul_rate, matmul_rate_of_process

CPU = torch.device("cpu")


@pytest.fixture
def products(monkeypatch):
    """The shapes of the products that are made, each as fast as the shape and `rate` say."""
    made = []
    clock = {"now": 0.0, "rate": 1e11}

    def product(left, right, out):
        made.append((tuple(left.shape), tuple(right.shape), left.dtype))
        clock["now"] += 2 * left.shape[0] * left.shape[1] * right.shape[1] / clock["rate"]

    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.setattr(time, "perf_counter", lambda: clock["now"])
    return made, clock


def test_the_rate_counts_two_operations_for_each_multiplication(products):
    made, _ = products
    assert matmul_rate(CPU, "fp32") == pytest.approx(1e11)
    assert made[0] == ((256, 768), (768, 3072), torch.float32)
    assert made[1:] == [((4096, 768), (768, 3072), torch.float32)] * 3


def test_a_slow_machine_is_not_kept_waiting(products):
    made, clock = products
    clock["rate"] = 3e10  # 0.64 s a product
    assert matmul_rate(CPU, "fp32") == pytest.approx(3e10)
    assert len(made) == 2
    made.clear()
    clock["rate"] = 1e8  # minutes a product: bf16 without the instructions
    assert matmul_rate(CPU, "bf16") == pytest.approx(1e8)
    assert made == [((256, 768), (768, 3072), torch.bfloat16)]


def test_samples_are_taken_for_as_long_as_asked(products):
    made, _ = products
    matmul_rate(CPU, "fp32", for_s=2.0)
    assert len(made) == pytest.approx(1 + 2.0 / 0.193, abs=1)


def test_a_real_product_has_a_rate_and_leaves_the_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert 1e8 < matmul_rate(CPU, "fp32") < 1e15
    assert torch.equal(torch.rand(3), expected)


def test_a_process_measures_once_for_each_number_of_threads(monkeypatch):
    measured = []
    monkeypatch.setattr(module, "matmul_rate", lambda device, precision: measured.append(precision) or 7.0)
    module._measured_once.cache_clear()
    threads = torch.get_num_threads()
    try:
        assert [matmul_rate_of_process(CPU, "fp32") for _ in range(3)] == [7.0] * 3
        torch.set_num_threads(threads + 1)
        matmul_rate_of_process(CPU, "fp32")
    finally:
        torch.set_num_threads(threads)
        module._measured_once.cache_clear()
    assert measured == ["fp32"] * 2
