"""Unit tests start no worker processes for data (see `_Here`), and compose configurations without lasting choices."""

from __future__ import annotations

import copy
import functools
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bertline.config import SECTIONS
from bertline.foundation import parallel

CONF = Path(__file__).resolve().parents[2] / "conf"


class _Here:
    """A pool whose work is done in this process; what would go to a process and back is pickled as it would be."""

    def __init__(self, num_workers: int, mp_context: Any, *, initializer: Callable[..., None], initargs: tuple[Any]):
        initializer(*_sent(initargs))

    def submit(self, apply: Callable[[Any], Any], item: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(_sent(apply(_sent(item))))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_: Any) -> None:
        pass


def _sent(value: Any) -> Any:
    return ForkingPickler.loads(ForkingPickler.dumps(value))


@pytest.fixture(autouse=True)
def data_workers_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes are for the tests of `ordered_map` itself."""
    if request.node.path.name != "test_parallel.py":
        monkeypatch.setattr(parallel, "ProcessPoolExecutor", _Here)


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """`composed("model=small", ...)`: the configuration that conf/ gives, without lasting choices."""

    # Lasting choices of whoever runs the tests must not change what is tested.
    conf = tmp_path_factory.mktemp("conf") / "conf"
    shutil.copytree(CONF, conf, ignore=shutil.ignore_patterns("local"))

    @functools.cache
    def compose_once(*overrides: str) -> dict[str, Any]:
        with initialize_config_dir(str(conf), version_base="1.3"):
            mapping = OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)
        return {section: mapping[section] for section in SECTIONS}  # type: ignore[index,call-overload]

    # A test may change what it gets.
    return lambda *overrides: copy.deepcopy(compose_once(*overrides))
