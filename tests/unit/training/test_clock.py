from bertline.training.clock import Lap, Seconds, TrainingClock


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


def test_a_pause_counts_while_it_lasts_and_a_pause_in_it_only_once():
    time = Time()
    clock = TrainingClock(time)
    time.now += 2
    with clock.paused():
        time.now += 30
        with clock.paused():
            time.now += 10
        assert clock.seconds == Seconds(trained_s=2, paused_s=40)
        time.now += 1
    assert clock.seconds == Seconds(trained_s=2, paused_s=41)


def test_a_lap_continues_in_the_next_process_and_the_one_after_it_begins_at_nothing():
    time = Time()
    first = Lap(TrainingClock(time))
    time.now += 3
    clock = TrainingClock(time)
    lap = Lap(clock, first.seconds)
    time.now += 100  # what comes before training
    lap.resume()
    with clock.paused():
        time.now += 7
    with clock.waiting():
        time.now += 2
    assert lap.seconds == Seconds(trained_s=5, waited_s=2, paused_s=7)
    assert lap.end() == Seconds(trained_s=5, waited_s=2, paused_s=7)
    time.now += 4
    assert lap.end() == Seconds(trained_s=4)
