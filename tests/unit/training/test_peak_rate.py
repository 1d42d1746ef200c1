"""The peak of a machine, which is measured once and kept."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from bertline.training import matmul_rate as module
from bertline.training.matmul_rate import peak_rate, rates_file

CPU = torch.device("cpu")


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
    assert "sustains 100 GFLOP/s" in first and str(rates_file()) in first and "Measured once" in first
    assert len(others) == 2


def test_the_file_names_processor_threads_precision_and_version(measured):
    peak_rate(CPU, "fp32")
    ((key, rate),) = json.loads(rates_file().read_text()).items()
    assert rate == 1e11
    for part in (f"threads: {torch.get_num_threads()}", "fp32", f"torch {torch.__version__}"):
        assert part in key


def test_another_version_of_torch_is_measured_again(measured, monkeypatch):
    peak_rate(CPU, "fp32")
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert peak_rate(CPU, "fp32") == 2e11
    assert len(json.loads(rates_file().read_text())) == 2


@pytest.mark.parametrize("content", ["{", "[]", '{"a": "fast"}', '{"a": null}'])
def test_a_damaged_file_is_replaced(measured, content):
    rates_file().parent.mkdir()
    rates_file().write_text(content)
    assert peak_rate(CPU, "fp32") == 1e11
    assert list(json.loads(rates_file().read_text()).values()) == [1e11]


def test_a_cache_folder_that_cannot_be_written_costs_only_the_keeping(measured, monkeypatch, tmp_path, capfd):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert peak_rate(CPU, "fp32") == 1e11
    assert "could not be kept" in capfd.readouterr().out


def test_two_processes_at_once_measure_one_after_the_other(measured, tmp_path):
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    processes = [context.Process(target=lambda: found.put(slowly())) for _ in range(2)]
    for process in processes:
        process.start()
    assert [found.get(timeout=30) for _ in processes] == [1e11, 1e11]
    for process in processes:
        process.join()
    assert (tmp_path / "times").read_text() == "x"


def slowly() -> float:
    import time

    def measure(device, precision):
        time.sleep(0.3)
        with (Path(os.environ["XDG_CACHE_HOME"]) / "times").open("a") as times:
            times.write("x")
        return 1e11

    module.hot_matmul_rate = measure
    return peak_rate(CPU, "fp32")
