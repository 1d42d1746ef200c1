"""What a configuration takes, checked against figures worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bertline.foundation.errors import ConfigError, MachineError
from bertline.planning.forecast import default_run_text, forecast, phases_reached
from bertline.planning.interconnect import link_of
from bertline.planning.text_size import ExamplesOfLength, TextSize
from bertline.pretraining.config import PhaseConfig
from bertline.pretraining.objectives.mlm import Mlm
from planning_inputs import UNKNOWN_TEXT, record, resources, training

PAPER = ((900_000, 128, 256), (100_000, 512, 256))
# 6 x 85,054,464 + 12 x (11 + r) x 768 x S + 6 x P / S x (768^2 + 768 x 30,522), P = 19 of 128 and 77 of 512 positions,
# less 6 x (1 - r) x 5,906,688, what a layer has besides keys and values, with r = (P + 1) / S.
FLOPS_AT_128 = 510_326_784 + 13_160_448 + 21_402_360 - 29_902_608
FLOPS_AT_512 = 510_326_784 + 52_623_360 + 21_683_970 - 30_041_046


def test_base_as_in_the_paper_on_one_a100_by_hand() -> None:
    found = forecast(training("base", *PAPER), resources("a100", tokens=3.3e9))
    assert (found.parameters, found.encoder_parameters) == (110_106_428, 85_054_464)
    assert found.embedding_parameters == (30_522 + 512 + 2 + 2) * 768
    assert found.tokens == 900_000 * 256 * 128 + 100_000 * 256 * 512 == 42_598_400_000
    assert found.targets == pytest.approx(0.15 * (900_000 * 256 * 125 + 100_000 * 256 * 509))
    assert [phase.flops for phase in found.phases] == [29_491_200_000 * FLOPS_AT_128, 13_107_200_000 * FLOPS_AT_512]
    # A share of 0.24 of 312 TFLOP/s, 15.2 and 7.3 x 10^18 operations.
    assert [phase.hours for phase in found.phases] == pytest.approx([56.34, 26.96], abs=0.01)
    assert (found.hours_at_best, found.hours_at_worst) == pytest.approx((found.hours / 2, found.hours / 0.75))
    assert found.steps == 1_000_000
    # 3.3e9 tokens are 26.4 M sequences of 128 and 6.48 M of 512.
    assert [phase.epochs for phase in found.phases] == pytest.approx([8.727, 3.949], abs=0.001)
    assert found.epochs == pytest.approx(12.676, abs=0.001)


def test_the_masked_language_model_alone_has_no_pooler_and_no_head_on_it() -> None:
    both, alone = training("base", *PAPER), training("base", *PAPER, objective=Mlm(kind="mlm"))
    expected, found = (forecast(one, resources("a100", tokens=3.3e9)) for one in (both, alone))
    assert expected.parameters - found.parameters == 768 * 768 + 768 + 2 * 768 + 2
    assert found.targets == pytest.approx(0.15 * (900_000 * 256 * 126 + 100_000 * 256 * 510))
    # The last layer is read at 19 of 128 positions instead of 20.
    assert expected.phases[0].flops - found.phases[0].flops == pytest.approx(
        expected.phases[0].tokens / 128 * (6 * 5_906_688 + 12 * 768 * 128)
    )
    assert found.phases[0].memory.weights < expected.phases[0].memory.weights


def test_memory_decides_which_micro_batch_fits() -> None:
    small = forecast(training("base", *PAPER), resources("rtx3090"))
    assert not small.fits
    advised = small.fitting_micro_batch_size
    assert advised is not None
    taken = forecast(training("base", *PAPER, micro_batch_size=advised), resources("rtx3090"))
    assert taken.fits
    assert (taken.hours, taken.tokens) == (small.hours, small.tokens)
    assert not forecast(training("base", *PAPER, micro_batch_size=2 * advised), resources("rtx3090")).fits


def test_micro_batches_in_tokens_are_as_many_rows_as_they_hold() -> None:
    found = forecast(training("base", *PAPER, micro_batch_tokens=4096), resources("a100"))
    assert [phase.micro_batch_size for phase in found.phases] == [32, 8]


def test_a_micro_batch_without_room_for_a_row_is_refused_as_the_run_refuses_it() -> None:
    with pytest.raises(
        ConfigError, match=r"micro_batch_tokens is 500, too few for one row of 512 tokens .* at least 512"
    ):
        forecast(training("base", *PAPER, micro_batch_tokens=500), resources("a100"))


def test_several_devices_share_the_batch_and_the_time() -> None:
    one = forecast(training("base", *PAPER), resources("a100"))
    eight = forecast(training("base", *PAPER), resources("a100", num_devices=8))
    assert eight.phases[0].micro_batch_size == 32
    assert 7.5 * eight.hours < one.hours < 8 * eight.hours  # NVIDIA's BERT: 7.9 times as fast (DeepLearningExamples)
    assert eight.fullest.memory.activations == one.fullest.memory.activations / 8


def test_devices_behind_a_slow_network_wait_for_it() -> None:
    fast, slow = (
        forecast(
            training("base", *PAPER),
            dataclasses.replace(
                resources("a100", num_devices=16),
                link=link_of("a100", 16, devices_per_node=8, network_gbit=gbit),
            ),
        )
        for gbit in (400, 10)
    )
    assert slow.hours > 2 * fast.hours
    assert "by a model of the link" in slow.phases[0].rate.basis


def test_more_devices_than_sequences_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"phases\[1\]\.global_batch_size is 8, fewer than the 16 devices"):
        forecast(training("tiny", (9, 64, 16), (9, 128, 8)), resources("a100", num_devices=16))


def test_measured_hours_are_the_tokens_over_the_tokens_a_second() -> None:
    found = forecast(training("base", (900_000, 128, 256)), resources("h200", records=(record(),)))
    assert found.hours == pytest.approx(29_491_200_000 / 500_000 / 3600)
    assert found.phases[0].tokens_per_s == pytest.approx(500_000)


def test_a_small_step_of_a_small_model_takes_as_long_as_starting_it() -> None:
    small, larger = (forecast(training("tiny", (1000, 64, batch)), resources("h200")) for batch in (8, 16))
    assert small.hours == larger.hours == pytest.approx(1000 * (2e-3 + 2 * 0.3e-3) / 3600)
    assert small.phases[0].launches_take_longest
    parts = forecast(training("tiny", (1000, 64, 16), micro_batch_size=8), resources("h200"))
    assert parts.hours == pytest.approx(2 * small.hours)
    assert not forecast(training("base", *PAPER), resources("h200")).phases[0].launches_take_longest


def counted(length: int, *, tokens_each: float) -> TextSize:
    examples = ExamplesOfLength(sequences=1000, tokens=1000 * tokens_each)
    return TextSize(tokens=1e5, basis="", lengths={length: examples})


@pytest.mark.parametrize(
    ("packing", "dropout", "fill", "share"),
    [
        ("on", 0.1, 0.9, 0.9),
        ("off", 0.0, 0.5, 1.0),
        ("auto", 0.0, 0.9, 0.9),  # attention that skips padding
        ("auto", 0.1, 0.9, 1.0),
        ("auto", 0.1, 0.5, 0.5),
    ],
)
def test_padding_takes_time_where_rows_are_padded(packing: str, dropout: float, fill: float, share: float) -> None:
    text = counted(128, tokens_each=128 * fill)
    asked = training("base", (10, 128, 100), packing=packing)
    asked = dataclasses.replace(asked, model=dataclasses.replace(asked.model, attention_probs_dropout_prob=dropout))
    found = forecast(asked, resources("a100", text=text))
    full = forecast(asked, resources("a100"))
    assert found.tokens == pytest.approx(fill * full.tokens)
    assert found.flops == pytest.approx(fill * full.flops)
    assert found.hours == pytest.approx(share * full.hours)
    assert found.epochs == 1.0


def hours(packing_attention: str, *, dropout: float, fill: float, device: str = "a100", **changes: Any) -> float:
    text = counted(128, tokens_each=128 * fill)
    asked = training("base", (10, 128, 100), attention=packing_attention, **changes)
    asked = dataclasses.replace(asked, model=dataclasses.replace(asked.model, attention_probs_dropout_prob=dropout))
    return forecast(asked, resources(device, text=text, precision=asked.precision)).hours


def test_rows_are_packed_for_the_attention_that_the_run_takes() -> None:
    packed = hours("auto", dropout=0.0, fill=0.9)
    padded = hours("auto", dropout=0.1, fill=0.9)
    assert packed == pytest.approx(0.9 * padded)
    assert hours("varlen", dropout=0.0, fill=0.9) == pytest.approx(packed)
    assert hours("sdpa", dropout=0.0, fill=0.9) == pytest.approx(padded)


@pytest.mark.parametrize(("dropout", "device", "precision"), [(0.1, "a100", "bf16"), (0.0, "a100", "fp32")])
def test_attention_that_the_run_refuses_is_refused(dropout: float, device: str, precision: str) -> None:
    with pytest.raises(MachineError, match=r"runtime\.attention is varlen, which needs"):
        hours("varlen", dropout=dropout, fill=0.9, device=device, precision=precision)


def test_a_gpu_without_bf16_has_no_attention_that_skips_padding() -> None:
    with pytest.raises(MachineError, match="compute capability 8.0"):
        hours("varlen", dropout=0.0, fill=0.9, device="v100", precision="fp32")


@pytest.mark.parametrize(("attention", "fuses"), [("auto", True), ("sdpa", True), ("plain", False), ("eager", False)])
def test_plain_attention_keeps_its_probabilities(attention: str, fuses: bool) -> None:
    phase = (10, 512, 256)
    found = forecast(training("base", phase, attention=attention), resources("a100"))
    best = forecast(training("base", phase, attention="sdpa"), resources("a100"))
    assert (found.fullest.memory.activations == best.fullest.memory.activations) is fuses


def test_epochs_are_unknown_where_the_text_is() -> None:
    found = forecast(training("tiny", (9, 64, 16)), resources("a100", text=UNKNOWN_TEXT))
    assert found.epochs is None
    assert found.tokens == 9 * 64 * 16


def test_max_steps_cuts_the_phases_where_the_run_ends() -> None:
    phases = [PhaseConfig(steps=5, max_length=length, global_batch_size=8) for length in (64, 128, 256)]
    cut: list[Any] = [(phase.steps, phase.max_length) for phase in phases_reached(phases, 8)]
    assert cut == [(5, 64), (3, 128)]
    assert phases_reached(phases, 15) == tuple(phases)


RECORD = {
    "precision": "bf16",
    "matmul_flops": 4e11,
    "runs": [
        {
            "wall_s": 700.0,
            "seconds": {"corpus": 60.0, "pretrain": 120.0, "sweep@a": 200.0, "sweep@b": 160.0, "export": 60.0},
        }
    ],
}


def test_the_forecast_of_the_default_run_scales_what_trains_by_the_rate_of_products() -> None:
    same = default_run_text([RECORD], precision="bf16", flops=4e11, threads=2)
    assert "about 12 minutes" in same and "text to examples 1, pretraining 2, tasks 6, report and export 1" in same
    assert "pretraining 4, tasks 12, " in default_run_text([RECORD], precision="bf16", flops=2e11, threads=2)


def test_a_record_of_the_machines_own_precision_is_preferred_and_of_another_scales_pretraining_alone() -> None:
    of_fp32 = {**RECORD, "precision": "fp32", "matmul_flops": 1e11}
    assert "pretraining 2, tasks 6, " in default_run_text([RECORD, of_fp32], precision="fp32", flops=1e11, threads=2)
    assert "pretraining 8, tasks 6, " in default_run_text([RECORD], precision="fp32", flops=1e11, threads=2)
