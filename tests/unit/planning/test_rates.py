"""Measured rates go before stated ones, and every figure says which of the two it rests on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bertline.modeling.flops import flops_per_token
from bertline.planning import rates
from bertline.planning.hardware import Hardware
from bertline.planning.rates import Rate, Rates, SpeedRecord, read_records
from planning_inputs import model, record, resources


def rate(size: str, *records: SpeedRecord, device: str = "h200", seq_len: int = 128, **where: Any) -> Rate:
    rates = resources(device, records=records, **where).rates
    return rates.of(model(size), vocab_size=30_522, seq_len=seq_len, target_fraction=19 / 128)


def cost(size: str, seq_len: int = 128) -> float:
    return flops_per_token(model(size), vocab_size=30_522, seq_len=seq_len, target_fraction=19 / 128)


def test_what_was_measured_of_this_very_model_is_taken_as_it_is() -> None:
    found = rate("base", record())
    assert found.flops_per_s == pytest.approx(500_000 * 514_986_984)
    assert found.measured
    assert (found.slowest, found.fastest) == (0.9, 1.1)
    assert found.basis == "measured: pretraining_step_nvidia-h200_base_128.json"


def test_the_same_model_with_other_dropout_is_less_certain() -> None:
    found = rate("base", record(dropout=0.0))
    assert (found.slowest, found.fastest) == (0.7, 1.3)
    assert "(dropout 0)" in found.basis


def test_of_two_records_of_a_model_the_one_with_its_dropout_is_taken() -> None:
    without = record(file="without", dropout=0.0, tokens_per_s=600_000.0)
    for records in ((record(), without), (without, record())):
        assert rate("base", *records).basis == "measured: pretraining_step_nvidia-h200_base_128.json"
        rates = resources("h200", records=records).rates
        bare = model("base", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        found = rates.of(bare, vocab_size=30_522, seq_len=128, target_fraction=19 / 128)
        assert (found.basis, found.fastest) == ("measured: without", 1.1)


def test_between_two_measured_models_the_rate_lies_between_theirs() -> None:
    small, large = record(file="a", flops_per_token=1e8, tokens_per_s=1e6), record(file="b", flops_per_token=2e9)
    found = rate("base", small, large)
    assert small.flops_per_s < found.flops_per_s < large.flops_per_s
    assert (found.measured, found.slowest, found.fastest) == (True, 0.7, 1.3)
    assert found.basis == "measured on models near it: a, b"


def test_a_length_that_is_near_is_used_and_the_nearest_goes_first() -> None:
    near, far = record(file="near", seq_len=256), record(file="far", seq_len=512, tokens_per_s=1.0)
    assert rate("base", near, far).flops_per_s == pytest.approx(near.flops_per_s)


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "NVIDIA A100-SXM4-80GB"},
        {"precision": "fp32"},
        {"seq_len": 1024},
        {"flops_per_token": 514_986_984 / 5},
        {"flops_per_token": 514_986_984 * 5},
    ],
    ids=["device", "precision", "length", "smaller", "larger"],
)
def test_what_was_measured_elsewhere_or_on_other_models_is_not_used(changes: dict[str, Any]) -> None:
    found = rate("base", record(**changes))
    assert not found.measured
    assert found.flops_per_s == pytest.approx(0.24 * 989e12)
    assert found.basis.startswith("not measured: 24.0% of 989 TFLOP/s in bf16 (NVIDIA H200 data sheet (SXM))")
    assert found.slowest < 1 < found.fastest


def test_a_stated_share_grows_with_the_hidden_size() -> None:
    shares = [rate(size).flops_per_s / 989e12 for size in ("tiny", "mini", "small", "base", "large")]
    assert shares == pytest.approx([0.02, 0.055, 0.16, 0.24, 0.34])


def test_in_fp32_without_tensor_cores_small_models_come_near_the_peak_too() -> None:
    assert rate("tiny", device="t4", precision="fp32").flops_per_s == pytest.approx(0.4 * 8.1e12)


def test_several_devices_do_a_little_less_than_their_number() -> None:
    one = rate("base", record())
    eight = one.together(8, 0.95)
    assert one.together(1, 1.0) == one
    assert 7 < eight.flops_per_s / one.flops_per_s < 8
    assert eight.flops_per_s * eight.fastest <= 8 * one.flops_per_s * one.fastest
    assert "8 devices together" in eight.basis


def test_records_of_this_machine_count_only_for_as_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "processor_name", lambda: "A CPU")
    machine = Hardware(
        name="cpu",
        title="",
        bf16_flops=1e12,
        fp32_flops=1e12,
        memory_bytes=10**10,
        pattern="",
        source="",
        num_threads=2,
    )
    measured = {
        threads: Rates(machine, "bf16", [record(device="A CPU", threads=threads)])
        .of(model("base"), vocab_size=30_522, seq_len=128, target_fraction=19 / 128)
        .measured
        for threads in (1, 2)
    }
    assert measured == {1: False, 2: True}


def test_records_are_read_and_what_is_none_is_skipped_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = dataclasses.asdict(record(file="pretraining_step_a.json"))
    (tmp_path / "pretraining_step_a.json").write_text(json.dumps({**kept, "device_type": "cuda", "rounds": {}}))
    (tmp_path / "pretraining_step_b.json").write_text(json.dumps({**kept, "tokens_per_s": None}))
    (tmp_path / "pretraining_step_c.json").write_text('{"device": "torn')
    (tmp_path / "pretraining_step_d.json").write_text("[]")
    (tmp_path / "finetuning.json").write_text("{}")
    assert read_records(tmp_path) == [record(file="pretraining_step_a.json")]
    warned = capsys.readouterr().err
    assert "pretraining_step_c.json is not a record" in warned
    assert "pretraining_step_d.json is not a record" in warned
    assert "step_b" not in warned
    assert "finetuning" not in warned


def test_the_records_that_are_kept_can_be_read() -> None:
    folder = Path(__file__).resolve().parents[3] / "benchmarks/results"
    assert len(read_records(folder)) == len(list(folder.glob("pretraining_step_*.json")))
