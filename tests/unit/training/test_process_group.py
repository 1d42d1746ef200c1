"""Which errors of a rank mean that another one is lost. Lost ranks themselves: `tests/integration`."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from bertline.training.process_group import is_of_connection


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"), True),
        (dist.DistBackendError("unhandled system error"), True),
        (FileNotFoundError(2, "No such file or directory", "/data/gloo/train.parquet"), False),
        (OSError("HTTPConnectionPool(host='127.0.0.1', port=5000): connection refused"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_only_an_error_of_the_connection_between_ranks_is_a_lost_rank(error: Exception, expected: bool) -> None:
    assert is_of_connection(error) == expected
