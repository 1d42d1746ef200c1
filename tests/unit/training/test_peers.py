"""Why an operation of all ranks failed: a rank that is lost, or something else that this rank tells by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from bertline.foundation.errors import PeerLostError
from bertline.training import peers as peers_module
from bertline.training.devices import Ranks
from bertline.training.peers import Peers


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], Peers]]:
    """Watches a rank that never gives a sign of life; it is lost after `timeout_s`."""
    monkeypatch.setattr(peers_module, "_connected", lambda timeout_s: dist.HashStore())
    watches = []

    def start(timeout_s: float) -> Peers:
        watches.append(Peers(Ranks(rank=0, world_size=2), timeout_s))
        return watches[-1]

    yield start
    for watch in watches:
        watch.close()


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "/data/gloo/train.parquet"),
        OSError("HTTPConnectionPool(host='127.0.0.1', port=5000): connection refused"),
    ],
)
def test_an_error_of_another_kind_is_not_taken_for_a_lost_rank(
    watched: Callable[[float], Peers], error: Exception
) -> None:
    assert watched(600.0).reason(error) is None  # however slow this machine is, the other rank is not lost yet


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"),
        dist.DistBackendError("unhandled system error"),
    ],
)
def test_an_error_of_the_connection_between_ranks_is_a_lost_rank(
    watched: Callable[[float], Peers], error: Exception
) -> None:
    assert isinstance(watched(1.0).reason(error), PeerLostError)
