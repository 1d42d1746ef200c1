"""The model of a step on several devices."""

from __future__ import annotations

import pytest

from bertline.planning.communication import Computing, Link, gradient_buckets, step_s
from bertline.planning.interconnect import computing_of, link_of

COMPUTING = Computing(forward_s=0.1, backward_s=0.2, update_s=0.01)


def link(**changes):
    return Link(**{"bytes_per_s": 1e9, "efficiency": 0.5, "latency_s": 0.0, **changes})


def test_one_device_does_not_communicate():
    assert step_s(COMPUTING, [1e9], 1, link(), overlap=1.0) == pytest.approx(COMPUTING.total_s)


def test_a_ring_sends_at_most_twice_the_bytes():
    times = [link().all_reduce_s(1e9, devices) for devices in (2, 4, 256)]
    assert times == pytest.approx([2.0, 3.0, 4 * 255 / 256])


@pytest.mark.parametrize(("tree", "messages"), [(False, 2 * 255), (True, 2 * 8)])
def test_latency_grows_with_the_messages(tree, messages):
    assert link(latency_s=1e-3, tree=tree).all_reduce_s(0.0, 256) == pytest.approx(messages * 1e-3)


def test_communication_that_the_backward_pass_hides_costs_only_the_last_bucket():
    buckets = [1e6] * 10  # 2 ms each, of 20 ms between two
    assert step_s(COMPUTING, buckets, 2, link(), overlap=1.0) == pytest.approx(COMPUTING.total_s + 0.002)
    assert step_s(COMPUTING, buckets, 2, link(), overlap=0.0) == pytest.approx(COMPUTING.total_s + 0.02)


def test_a_slow_link_is_busy_from_the_first_bucket_on():
    buckets = [1e8] * 4  # 0.2 s each, of 0.05 s between two
    assert step_s(COMPUTING, buckets, 2, link(), overlap=1.0) == pytest.approx(0.1 + 0.05 + 0.8 + 0.01)


def test_the_embeddings_of_base_are_the_last_bucket():
    buckets = gradient_buckets(86_000_000, 24_000_000)
    assert sum(buckets) == pytest.approx(4 * 110_000_000)
    assert buckets[-1] == 96_000_000
    assert max(buckets[:-1]) <= 25 * 1024 * 1024


def test_accumulation_leaves_less_of_the_step_to_hide_behind():
    one, four = computing_of(1.0), computing_of(1.0, passes=4)
    assert one.total_s == pytest.approx(four.total_s)
    assert four.backward_s == pytest.approx(one.backward_s / 4)


def test_devices_of_one_node_need_no_network():
    inside = link_of("h100", 8, devices_per_node=8, network_gbit=100)
    across = link_of("h100", 16, devices_per_node=8, network_gbit=100)
    assert (inside.bytes_per_s, across.bytes_per_s) == (450e9, 12.5e9)
    assert link_of("h100_pcie", 2, devices_per_node=8, network_gbit=100).bytes_per_s == 64e9
