import pytest

from bertline.training.config import ConstantScheduleConfig, CosineScheduleConfig, LinearScheduleConfig
from bertline.training.schedules import learning_rate_factor

SHAPES = [
    LinearScheduleConfig(kind="linear", num_warmup_steps=10),
    CosineScheduleConfig(kind="cosine", num_warmup_steps=10, final_fraction=0.1),
    ConstantScheduleConfig(kind="constant", num_warmup_steps=10),
]


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.kind)
def test_warm_up_rises_linearly_to_the_whole_peak(config):
    factor = learning_rate_factor(config, num_steps=100)
    assert [factor(step) for step in range(10)] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factor(10) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("config", "middle", "end"),
    zip(SHAPES, (0.5, 0.55, 1.0), (0.0, 0.1, 1.0), strict=True),
    ids=str,
)
def test_decay_reaches_its_end_at_the_last_step(config, middle, end):
    factor = learning_rate_factor(config, num_steps=110)
    assert factor(60) == pytest.approx(middle)
    assert factor(110) == pytest.approx(end)
    assert factor(10_000) == pytest.approx(end)


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.kind)
def test_the_factor_never_leaves_zero_to_one(config):
    factor = learning_rate_factor(config, num_steps=37)
    assert all(0.0 <= factor(step) <= 1.0 for step in range(60))


def test_no_warm_up_begins_at_the_peak():
    factor = learning_rate_factor(LinearScheduleConfig(kind="linear", num_warmup_steps=0), num_steps=4)
    assert [factor(step) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]
