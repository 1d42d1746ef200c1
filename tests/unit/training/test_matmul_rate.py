"""The rate of a large matrix product, which utilisation is measured against; it is measured once and kept."""

import time

import pytest
import torch

from bertline.training import matmul_rate as module
from bertline.training.matmul_rate import hot_matmul_rate, peak_rate, rates_folder

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
    assert hot_matmul_rate(CPU, "fp32") == pytest.approx(1e11)
    assert made[0] == ((256, 768), (768, 3072), torch.float32)
    assert set(made[1:]) == {((4096, 768), (768, 3072), torch.float32)}


def test_a_slow_machine_is_not_kept_waiting(products):
    made, clock = products
    clock["rate"] = 1e8  # minutes a product: bf16 without the instructions
    assert hot_matmul_rate(CPU, "bf16") == pytest.approx(1e8)
    assert made == [((256, 768), (768, 3072), torch.bfloat16)]


def test_a_real_product_has_a_rate_and_leaves_the_random_numbers_alone(monkeypatch):
    monkeypatch.setattr(module, "_WARM_UP_S", 0.0)
    monkeypatch.setattr(module, "_HOT_S", 0.1)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert 1e8 < hot_matmul_rate(CPU, "fp32") < 1e15
    assert torch.equal(torch.rand(3), expected)


def test_a_hot_rate_is_that_of_the_best_half_second_after_a_second_of_warming_up(products, monkeypatch):
    _, clock = products
    # A cold device first, then one whose cores are shared at times.
    rates = {0.0: 4e11, 1.0: 1e11, 2.0: 2e11, 3.4: 1e11}
    product = torch.mm

    def at_the_moment(left, right, out):
        clock["rate"] = rates[max(begun for begun in rates if begun <= clock["now"])]
        product(left, right, out)

    monkeypatch.setattr(torch, "mm", at_the_moment)
    assert hot_matmul_rate(CPU, "fp32") == pytest.approx(2e11, rel=0.01)
    assert clock["now"] == pytest.approx(4.0, abs=0.6)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Precisions that were measured; a measurement gives 1e11, then 2e11, and so on."""
    precisions = []

    def measure(device, precision):
        precisions.append(precision)
        return 1e11 * len(precisions)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "hot_matmul_rate", measure)
    new_process()
    yield precisions
    new_process()


def new_process() -> None:
    """Forget what this process has read."""
    module._read_once.cache_clear()


def test_a_machine_is_measured_once_for_each_precision_and_number_of_threads(measured, capfd):
    threads = torch.get_num_threads()
    for _ in range(3):
        new_process()
        assert peak_rate(CPU, "fp32") == 1e11
    assert peak_rate(CPU, "bf16") == 2e11
    try:
        torch.set_num_threads(threads + 1)
        assert peak_rate(CPU, "fp32") == 3e11
    finally:
        torch.set_num_threads(threads)
    assert measured == ["fp32", "bf16", "fp32"]
    (first, *others) = capfd.readouterr().out.splitlines()
    assert "sustains 100 GFLOP/s" in first and "Measured once" in first
    assert len(others) == 2


@pytest.mark.parametrize("damage", [lambda whole: whole[:-2], lambda whole: whole.replace(b"1", b"2"), lambda _: b""])
def test_a_damaged_file_is_replaced(measured, damage):
    assert peak_rate(CPU, "fp32") == 1e11
    (file,) = rates_folder().glob("*.json")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    for _ in range(2):
        new_process()
        assert peak_rate(CPU, "fp32") == 2e11
    assert measured == ["fp32"] * 2


def test_a_cache_folder_that_cannot_be_written_costs_only_the_keeping(measured, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert peak_rate(CPU, "fp32") == 1e11
