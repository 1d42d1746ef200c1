from bertline.training.clock import TrainingClock


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_pauses_do_not_count_and_waiting_does():
    time = Time()
    clock = TrainingClock(time)
    time.now += 5
    with clock.paused():
        time.now += 60
    with clock.waiting():
        time.now += 1
    assert clock.trained_s == 6
    assert clock.waited_s == 1


def test_start_forgets_what_was_before():
    time = Time()
    clock = TrainingClock(time)
    with clock.waiting():
        time.now += 5
    clock.start()
    time.now += 2
    assert (clock.trained_s, clock.waited_s) == (2, 0)
