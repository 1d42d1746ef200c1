"""Why an operation of all ranks failed: a rank that is lost, or something else that this rank tells by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from bertline.foundation.errors import PeerLostError
from bertline.training import peers as peers_module
from bertline.training.devices import Ranks
from bertline.training.peers import Peers


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peers]:
    monkeypatch.setattr(peers_module, "_connected", lambda timeout_s: dist.HashStore())
    watch = Peers(Ranks(rank=0, world_size=2), timeout_s=1.0)
    yield watch
    watch.close()


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "/data/gloo/train.parquet"),
        OSError("HTTPConnectionPool(host='127.0.0.1', port=5000): connection refused"),
    ],
)
def test_an_error_of_another_kind_is_not_taken_for_a_lost_rank(peers: Peers, error: Exception) -> None:
    assert peers.reason(error) is None


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"),
        dist.DistBackendError("unhandled system error"),
    ],
)
def test_an_error_of_the_connection_between_ranks_is_a_lost_rank(peers: Peers, error: Exception) -> None:
    assert isinstance(peers.reason(error), PeerLostError)
