from bertline.training.clock import Seconds, TrainingClock


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


def test_start_forgets_what_was_before():
    time = Time()
    clock = started(time)
    with clock.waiting():
        time.now += 5
    clock.start()
    time.now += 2
    assert clock.seconds == Seconds(trained_s=2)


def test_a_pause_counts_while_it_lasts_and_a_pause_in_it_only_once():
    time = Time()
    clock = started(time)
    time.now += 2
    with clock.paused():
        time.now += 30
        with clock.paused():
            time.now += 10
        assert clock.seconds == Seconds(trained_s=2, paused_s=40)
        time.now += 1
    assert clock.seconds == Seconds(trained_s=2, paused_s=41)


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
