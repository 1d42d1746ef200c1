import pytest

from bertline.training.progress import Seconds, TrainingClock, TrainingProgress

METRICS = {"train/loss": 4.5678, "train/mlm_accuracy": 0.3333, "perf/tokens_per_s": 51234.5, "other": 1.0}


def progress(**changes) -> TrainingProgress:
    plain = {"first_step": 0, "num_steps": 100, "every_s": 0.0, "shown": True}
    return TrainingProgress("pretraining", **{**plain, "score": ("train/mlm_accuracy", "accuracy"), **changes})


def test_a_line_has_steps_loss_accuracy_speed_and_time_left(capsys):
    with progress() as shown:
        shown.note(METRICS)
        shown.show(50, left_s=130.2)
        shown.note({**METRICS, "perf/mfu": 0.414, "perf/data_wait_fraction": 0.0041, "perf/memory_bytes": 3 * 2**29})
        shown.show(100)
    text = capsys.readouterr().out
    assert "step 50 of 100, loss 4.568, accuracy 0.333, 51,234 tokens/s, 2 min 10 s left" in text
    assert "51,234 tokens/s, 41 % utilised, 0.4 % waiting for data, 1.5 GiB" in text


@pytest.mark.parametrize("is_first_rank", [True, False])
def test_lines_come_no_more_often_than_asked_but_the_last_always_and_from_one_rank(capsys, is_first_rank):
    with progress(every_s=1000.0, shown=is_first_rank) as shown:
        for step in range(1, 101):
            shown.show(step)
    assert capsys.readouterr().out.splitlines() == ["pretraining: step 100 of 100"] * is_first_rank


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def started(time, before=None):
    clock = TrainingClock(before, now=time)
    clock.start()
    return clock


def test_pauses_do_not_count_and_waiting_does():
    time = Time()
    clock = started(time)
    time.now += 5
    with clock.paused():
        time.now += 60
    with clock.waiting():
        time.now += 1
    assert clock.seconds == Seconds(trained_s=6, waited_s=1, paused_s=60)


def test_it_continues_in_the_next_process_from_its_start_on():
    time = Time()
    before = Seconds(trained_s=3, waited_s=1, paused_s=4)
    clock = TrainingClock(before, now=time)
    time.now += 100  # what comes before training
    assert clock.seconds == before
    clock.start()
    with clock.paused():
        time.now += 7
    with clock.waiting():
        time.now += 2
    assert clock.seconds == Seconds(trained_s=5, waited_s=3, paused_s=11)
    assert clock.seconds - before == Seconds(trained_s=2, waited_s=2, paused_s=7)
