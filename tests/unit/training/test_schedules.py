import pytest

from bertline.training.config import (
    ConstantScheduleConfig,
    CosineScheduleConfig,
    LinearScheduleConfig,
    WarmupStableDecayScheduleConfig,
)

SHAPES = [
    LinearScheduleConfig(kind="linear", num_warmup_steps=10),
    CosineScheduleConfig(kind="cosine", num_warmup_steps=10, final_fraction=0.1),
    ConstantScheduleConfig(kind="constant", num_warmup_steps=10),
    WarmupStableDecayScheduleConfig(
        kind="wsd", num_warmup_steps=10, num_decay_steps=100, final_fraction=0.2, decay="linear"
    ),
]


def stable(**changes) -> WarmupStableDecayScheduleConfig:
    fields = {"num_warmup_steps": 10, "num_decay_steps": 20, "final_fraction": 0.0, "decay": "linear", **changes}
    return WarmupStableDecayScheduleConfig(kind="wsd", **fields)


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.kind)
def test_warm_up_rises_linearly_to_the_whole_peak(config):
    factor = config.learning_rate_factor(100)
    assert [factor(step) for step in range(10)] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factor(10) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("config", "middle", "end"), zip(SHAPES, (0.5, 0.55, 1.0, 0.6), (0.0, 0.1, 1.0, 0.2), strict=True), ids=str
)
def test_decay_reaches_its_end_at_the_last_step(config, middle, end):
    factor = config.learning_rate_factor(110)
    assert factor(60) == pytest.approx(middle)
    assert factor(110) == pytest.approx(end)
    assert factor(10_000) == pytest.approx(end)


@pytest.mark.parametrize("decay", ["linear", "1-sqrt"])
def test_the_stable_rate_stays_at_the_peak_until_the_descent(decay):
    factor = stable(decay=decay).learning_rate_factor(100)
    assert [factor(step) for step in range(10, 81)] == [1.0] * 71
    assert factor(81) < 1.0
    assert factor(100) == 0.0


def test_the_descent_is_a_line_or_one_minus_the_root_of_its_share():
    line = stable(final_fraction=0.5).learning_rate_factor(100)
    root = stable(decay="1-sqrt", final_fraction=0.5).learning_rate_factor(100)
    assert [line(step) for step in (80, 85, 90, 100)] == pytest.approx([1.0, 0.875, 0.75, 0.5])
    assert [root(step) for step in (80, 85, 90, 100)] == pytest.approx([1.0, 0.75, 0.5 + 0.5 * (1 - 0.5**0.5), 0.5])


def test_without_a_number_the_descent_takes_a_fifth_of_the_run():
    factor = stable(num_decay_steps=None).learning_rate_factor(200)
    assert factor(160) == 1.0
    assert factor(161) < 1.0


def test_a_longer_run_begins_with_the_same_rates():
    short, longer = (stable().learning_rate_factor(steps) for steps in (100, 200))
    assert [short(step) for step in range(80)] == [longer(step) for step in range(80)]


def test_a_run_cut_short_warms_up_first_and_descends_over_what_is_left():
    factor = stable().learning_rate_factor(16)
    assert [factor(step) for step in (0, 9, 10, 13, 16)] == pytest.approx([0.1, 1.0, 1.0, 0.5, 0.0])
    inside = stable().learning_rate_factor(5)
    assert [inside(step) for step in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
