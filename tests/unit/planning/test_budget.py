"""The best use of hours: it fits them, it fits the memory, and it follows what the law says of size and text."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from bertline.foundation.errors import ConfigError
from bertline.planning.budget import BestUse, as_override, best_use, length_shares, overrides_for
from bertline.planning.forecast import forecast
from bertline.planning.report import best_use_text
from bertline.planning.scaling import batch_tokens, expected_loss, learning_rate
from planning_inputs import SIZES, asked, model, optimizer, resources, training

PAPER = ((900_000, 128, 256), (100_000, 512, 256))
SHORT = ((600, 16, 256), (6400, 64, 64))


def use_of(
    hours: float, device: str = "a100", *, phases: Any = PAPER, tokens: float | None = None, **changes: Any
) -> BestUse:
    where = {key: changes.pop(key) for key in ("num_devices", "precision") if key in changes}
    of_plan = {key: changes.pop(key) for key in ("lengths", "max_epochs") if key in changes}
    present = training("tiny", *phases, precision=where.get("precision", "bf16"), **changes)
    sizes = {size: model(size) for size in SIZES}
    return best_use(present, sizes, resources(device, tokens=tokens, **where), asked(hours=hours, **of_plan))


@pytest.mark.parametrize(
    ("hours", "device", "where"),
    [
        (0.05, "a100", {}),
        (0.03, "h200", {"lengths": [16, 32]}),
        (2, "h200", {"lengths": [16]}),
        (1, "a100", {}),
        (24, "a100", {}),
        (24, "l4", {"phases": SHORT}),
        (24, "t4", {"precision": "fp32"}),
        (7, "rtx4090", {"lengths": [64, 128, 512]}),
        (72, "h100", {"num_devices": 8}),
        (3, "v100", {"precision": "fp32", "num_devices": 3}),
        (500, "b200", {"packing": "on", "optimizer": optimizer("lamb")}),
    ],
)
def test_planning_the_recommended_run_gives_the_hours_or_a_little_less(
    hours: float, device: str, where: dict[str, Any]
) -> None:
    use = use_of(hours, device, tokens=1e12, **where)
    for one in use.candidates:
        again = forecast(one.training, resources(device, tokens=1e12, num_devices=where.get("num_devices", 1),
                                             precision=where.get("precision", "bf16")))  # fmt: skip
        assert 0.85 * hours < again.hours <= hours, one.size
        assert again.hours == one.forecast.hours
        assert one.num_warmup_steps < again.steps
        assert all(phase.global_batch_size >= where.get("num_devices", 1) for phase in again.phases)
    assert use.chosen.forecast.fits
    assert not use.chosen.text_runs_out


def test_a_day_of_an_a100_and_four_billion_tokens_are_for_base() -> None:
    """11 B tokens, 1.6 B targets: some 20 a parameter of the 85 M in the layers, which is what the law asks for."""
    use = use_of(24, tokens=4e9)
    assert use.chosen.size == "base"
    assert 15 < use.chosen.targets_per_parameter < 30
    assert use.chosen.forecast.epochs == pytest.approx(2.86, abs=0.1)


def test_more_hours_never_make_the_model_smaller() -> None:
    hours = [0.01, 0.1, 1, 5, 24, 100, 500, 2000]
    chosen = [SIZES.index(use_of(one, tokens=1e13).chosen.size) for one in hours]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_less_text_never_makes_the_model_larger() -> None:
    texts = [1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11]
    chosen = [SIZES.index(use_of(100, tokens=one).chosen.size) for one in texts]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_a_small_text_is_not_read_for_ever() -> None:
    use = use_of(24, tokens=1e7)
    assert use.max_epochs == pytest.approx(4 / 0.15)
    for one in use.candidates:
        assert one.forecast.epochs == pytest.approx(use.max_epochs, rel=0.02)
        assert one.text_runs_out
        assert one.forecast.hours < 24
    twice = use_of(24, tokens=1e7, max_epochs=2)
    assert twice.chosen.forecast.epochs == pytest.approx(2, rel=0.02)


def test_what_does_not_fit_the_memory_is_not_chosen() -> None:
    without = use_of(5000, "l4", tokens=1e13)
    assert without.chosen.size == "large"
    hardware = dataclasses.replace(resources("l4").hardware, memory_bytes=4 * 10**9)
    narrow = dataclasses.replace(resources("l4", tokens=1e13), hardware=hardware)
    use = best_use(training("tiny", *PAPER), {size: model(size) for size in SIZES}, narrow, asked(hours=5000))
    assert {one.size for one in use.candidates if not one.forecast.fits} == {"large"}
    assert use.chosen.size == "base"
    nothing = dataclasses.replace(narrow, hardware=dataclasses.replace(hardware, memory_bytes=10**9))
    with pytest.raises(ConfigError, match="no size fits"):
        best_use(training("tiny", *PAPER), {size: model(size) for size in SIZES}, nothing, asked(hours=5000))


def test_a_step_that_is_too_large_is_cut_into_micro_batches_and_the_overrides_say_so() -> None:
    use = use_of(24, "rtx3090", tokens=1e12, micro_batch_tokens=10**6)
    keys = overrides_for(use, training("tiny", *PAPER, micro_batch_tokens=10**6), num_devices=1, keeps_rate=False)
    size = keys["runtime.micro_batch_size"]
    assert size == use.chosen.training.runtime.micro_batch_size
    assert size & (size - 1) == 0
    assert keys["runtime.micro_batch_tokens"] is None


def test_the_overrides_say_all_that_the_run_needs() -> None:
    use = use_of(24, tokens=4e9, num_devices=4)
    keys = overrides_for(use, training("tiny", *PAPER), num_devices=4, keeps_rate=False)
    phases = keys["pretrain.phases"]
    assert [set(phase) for phase in phases] == [{"steps", "max_length", "global_batch_size"}] * 2
    assert keys["examples.lengths"] == [128, 512]
    assert keys["pretrain.max_steps"] is None
    assert keys["runtime.num_devices"] == 4
    assert keys["optimizer.lr"] == use.chosen.learning_rate
    assert "optimizer.lr" not in overrides_for(use, training("tiny", *PAPER), num_devices=4, keeps_rate=True)


def test_every_step_has_as_many_tokens_and_phases_keep_their_share_of_them() -> None:
    phases = use_of(24, tokens=1e12).chosen.training.phases
    assert len({phase.max_length * phase.global_batch_size for phase in phases}) == 1
    # The paper's phases have 29.5 and 13.1 billion tokens.
    assert phases[0].steps / phases[1].steps == pytest.approx(29.4912 / 13.1072, rel=0.01)


def test_the_batch_follows_the_rule_unless_that_left_too_few_steps() -> None:
    one = use_of(24, tokens=1e12).chosen
    tokens = one.training.phases[0].global_batch_size * 128
    assert 2**-0.5 <= tokens / batch_tokens(one.forecast.flops) <= 2**0.5
    brief = use_of(0.1, tokens=1e12, phases=((9, 128, 8),)).candidates[-1]
    assert brief.training.phases[0].global_batch_size * 128 < batch_tokens(brief.forecast.flops) / 2


@pytest.mark.parametrize(
    ("lengths", "phases", "on_gpu", "expected"),
    [
        (None, SHORT, False, [(16, 2_457_600 / 28_672_000), (64, 26_214_400 / 28_672_000)]),
        (None, SHORT, True, [(128, 1.0)]),
        (None, ((10, 512, 8),), True, [(512, 1.0)]),
        ([256], SHORT, False, [(256, 1.0)]),
        ([128, 512], SHORT, True, [(128, 0.9), (512, 0.1)]),
        ([64, 128, 512], SHORT, True, [(64, 0.45), (128, 0.45), (512, 0.1)]),
    ],
)
def test_lengths_are_those_asked_for_else_the_present_ones_else_128_on_a_gpu(
    lengths: Any, phases: Any, on_gpu: bool, expected: list[tuple[int, float]]
) -> None:
    present = training("tiny", *phases).phases
    found = length_shares(present, asked(lengths=lengths), model=model("tiny"), on_gpu=on_gpu)
    assert [one.length for one in found] == [length for length, _ in expected]
    assert [one.share for one in found] == pytest.approx([share for _, share in expected])


def test_a_length_without_positions_is_refused() -> None:
    with pytest.raises(ConfigError, match=re.escape("plan.lengths has 1024, but the model has positions for 512")):
        use_of(1, lengths=[1024])


@pytest.mark.parametrize("hours", [1e-9, 1e-6])
def test_hours_that_are_too_few_for_anything_are_refused(hours: float) -> None:
    with pytest.raises(ConfigError, match=r"plan\.hours is .*not even 16 steps"):
        use_of(hours)


def test_without_knowing_the_text_it_is_taken_to_be_enough() -> None:
    unknown, enough = use_of(24), use_of(24, tokens=1e15)
    assert unknown.chosen.size == enough.chosen.size
    assert unknown.chosen.training.phases == enough.chosen.training.phases
    assert unknown.chosen.forecast.epochs is None


def test_the_law_prefers_some_twenty_targets_a_parameter() -> None:
    """Of all ways to spend the same 6 N D operations, as in Hoffmann et al., arXiv 2203.15556, table A3."""
    product = 1e8 * 20e8
    sizes = [10 ** (6 + step / 50) for step in range(200)]
    best = min(sizes, key=lambda size: expected_loss(size, product / size, None))
    assert 15 < product / best**2 < 25


def test_repeated_targets_are_worth_less_and_less_but_never_nothing() -> None:
    times = (1, 2, 4, 16, 64, 256)
    repeated, fresh = ([expected_loss(4e5, one * 1e9, unique) for one in times] for unique in (1e9, None))
    assert repeated == sorted(repeated, reverse=True)
    worth = [(repeated[0] - one) / (fresh[0] - other) for one, other in zip(repeated[1:], fresh[1:], strict=True)]
    assert worth == sorted(worth, reverse=True)
    assert worth[1] > 0.85  # four times: nearly as good as new ones (arXiv 2305.16264, section 6)
    assert worth[-1] < 0.75


@pytest.mark.parametrize(("flops", "taken"), [(1e14, 3e-3), (2e19, 5e-4), (1.2e21, 6e-4)])
def test_the_rate_is_near_those_that_encoders_were_trained_with(flops: float, taken: float) -> None:
    assert 0.5 < learning_rate(flops) / taken < 2


def test_overrides_are_in_the_grammar_of_hydra() -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    values = {"a.b": [{"steps": 3, "max_length": 8}], "c": None, "d": 0.00034, "e": [128, 512], "f": "on"}
    read = OverridesParser.create().parse_overrides([as_override(key, value) for key, value in values.items()])
    assert {one.key_or_group: one.value() for one in read} == values


def test_both_rules_are_printed_with_the_ratio_of_the_chosen_size() -> None:
    use = use_of(24, tokens=4e9)
    where = resources("a100", tokens=4e9, precision="bf16")
    said = " ".join(best_use_text(use, where, asked(hours=24), command=["plan"]).split())
    assert "some 20 tokens per parameter" in said and "these are 133 tokens of text for each parameter" in said
    assert "10 to 100 times the tokens per parameter of decoders, that is 200 to 2,000 tokens of text" in said
    assert "(Dervishi et al., EMNLP 2025, abstract)" in said
    ratio = use.chosen.forecast.tokens / use.chosen.forecast.encoder_parameters
    assert f"{use.chosen.size} has {ratio:,.0f}" in said
    within = {one.size for one in use.candidates if 200 <= one.tokens_per_parameter <= 2000}
    named = said.partition("Within it: ")[2].partition(". The paper")[0]
    assert {part.split(" (")[0] for part in named.split(", ")} == within
