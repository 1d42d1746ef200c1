"""Prefetched items are the items: in order, errors included, and no thread stays behind."""

import threading
import time

import pytest

from bertline.pretraining.data import prefetched


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetching")]


def test_items_come_in_order_and_the_thread_ends():
    assert list(prefetched(range(50), ahead=3)) == list(range(50))
    assert not threads()


def test_an_error_is_raised_where_its_item_would_have_come():
    def items():
        yield 1
        yield 2
        raise ValueError("torn")

    found = []
    with pytest.raises(ValueError, match="torn"):
        for item in prefetched(items(), ahead=5):
            found.append(item)
    assert found == [1, 2]
    assert not threads()


def test_no_more_is_fetched_ahead_than_was_asked_for():
    fetched = []

    def items():
        for number in range(100):
            fetched.append(number)
            yield number

    taken = prefetched(items(), ahead=2)
    assert next(taken) == 0
    time.sleep(0.3)
    assert len(fetched) == 4  # one taken, two ready, one in the thread's hand
    taken.close()
    assert not threads()
    assert len(fetched) == 4


def test_the_iterator_is_made_by_the_caller_itself():
    makers = []

    class Loader:
        def __iter__(self):
            makers.append(threading.current_thread())
            return iter([1, 2])

    assert list(prefetched(Loader(), ahead=1)) == [1, 2]
    assert makers == [threading.current_thread()]


def test_slow_fetching_continues_during_slow_work():
    def items():
        for number in range(5):
            time.sleep(0.1)
            yield number

    began = time.monotonic()
    for _ in prefetched(items(), ahead=2):
        time.sleep(0.1)
    assert time.monotonic() - began < 0.9  # one after the other takes 1.0 s and more
