"""Private and undocumented parts of torchrun that `bertline.orchestration.torchrun` and the process group rely on."""

from __future__ import annotations

import ast
import inspect
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed import run
from torch.distributed.elastic.agent.server import api as agents
from torch.distributed.elastic.agent.server import local_elastic_agent
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, api, start_processes

PASSED_ON_ANYWAY = (signal.SIGUSR1, signal.SIGUSR2)


class Asked(SimpleElasticAgent):
    """An agent that a signal interrupts while it waits for its ranks."""

    def __init__(self, error: BaseException) -> None:
        handler: Any = SimpleNamespace()
        super().__init__(WorkerSpec(role="rank", local_world_size=1, rdzv_handler=handler, fn=print))
        self.error = error
        self.shut_down: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def _invoke_run(self, role: str = "") -> Any:
        raise self.error

    def _shutdown(self, *arguments: Any, **named: Any) -> None:
        self.shut_down.append((arguments, named))

    def _start_workers(self, worker_group: Any) -> Any:
        raise NotImplementedError

    def _stop_workers(self, worker_group: Any) -> Any:
        raise NotImplementedError

    def _monitor_workers(self, worker_group: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def handlers() -> Any:
    """Put the handlers of this process back."""
    numbers = (*PASSED_ON_ANYWAY, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


def test_starting_ranks_installs_the_modules_handler_of_that_moment_and_none_for_usr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers: dict[signal.Signals, Any]
) -> None:
    def stop(number: int, frame: Any) -> None:
        raise AssertionError

    monkeypatch.delenv("TORCHELASTIC_SIGNALS_TO_HANDLE", raising=False)
    monkeypatch.setattr(api, "_terminate_process_handler", stop)
    logs = DefaultLogsSpecs(log_dir=str(tmp_path))
    ranks = start_processes(name="rank", entrypoint="true", args={0: ()}, envs={0: {}}, logs_specs=logs)
    try:
        assert signal.getsignal(signal.SIGTERM) is stop
        assert signal.getsignal(signal.SIGINT) is stop
        for number in PASSED_ON_ANYWAY:
            assert signal.getsignal(number) is handlers[number]
        assert ranks.wait(timeout=30) is not None
    finally:
        ranks.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_the_exception_of_a_signal_shuts_the_ranks_down_with_that_signal(number: signal.Signals) -> None:
    agent = Asked(SignalException("torchrun received a signal", sigval=number))
    with pytest.raises(SignalException, match="torchrun received a signal"):
        agent.run()
    ((arguments, named),) = agent.shut_down
    assert arguments == (number,)
    assert set(named) <= {"timeout"}


def test_the_failure_of_a_rank_shuts_the_others_down_too() -> None:
    agent = Asked(RuntimeError("a rank failed"))
    with pytest.raises(RuntimeError, match="a rank failed"):
        agent.run()
    ((arguments, named),) = agent.shut_down
    assert arguments == ()
    assert set(named) <= {"timeout"}


def test_the_agent_waits_for_the_ranks_as_long_as_the_timeout_says_after_their_signal() -> None:
    closed: list[tuple[Any, ...]] = []
    agent: Any = SimpleNamespace(
        _worker_watchdog=None,
        _health_check_server=None,
        _pcontext=SimpleNamespace(close=lambda *given: closed.append(given)),
    )
    LocalElasticAgent._shutdown(agent, signal.SIGUSR1, timeout=300)
    LocalElasticAgent._shutdown(agent, timeout=30)
    assert closed == [(signal.SIGUSR1, 300), (signal.SIGTERM, 30)]


@pytest.mark.parametrize("module", [agents, local_elastic_agent])
def test_no_call_gives_the_timeout_by_its_place_where_bertlines_own_would_be_a_second_one(module: Any) -> None:
    calls = [
        call
        for call in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "_shutdown"
    ]
    assert calls
    assert all(len(call.args) <= 1 for call in calls)


def test_torchrun_reads_the_arguments_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(run, "run", seen.append)
    monkeypatch.setattr("sys.argv", ["torchrun", "--standalone", "--nproc-per-node=2", "-m", "a.module", "folder"])
    run.main()
    assert (seen[0].standalone, seen[0].nproc_per_node, seen[0].module) == (True, "2", True)
    assert (seen[0].training_script, seen[0].training_script_args) == ("a.module", ["folder"])


def test_its_variables_are_defaults_that_arguments_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"NNODES": "7", "NPROC_PER_NODE": "3", "NODE_RANK": "5", "RDZV_ENDPOINT": "10.0.0.1:4000"}
    for name, value in given.items():
        monkeypatch.setenv(f"PET_{name}", value)
    default, replaced = run.parse_args(["rank.py"]), run.parse_args(["--nnodes=2", "--node-rank=1", "rank.py"])
    assert (default.nnodes, default.nproc_per_node, default.node_rank) == ("7", "3", 5)
    assert default.rdzv_endpoint == "10.0.0.1:4000"
    assert (replaced.nnodes, replaced.node_rank, replaced.nproc_per_node) == ("2", 1, "3")


def test_ranks_learn_of_restarts_and_of_the_agents_store_from_their_environment() -> None:
    source = inspect.getsource(LocalElasticAgent._start_workers)
    assert '"TORCHELASTIC_RESTART_COUNT": str(restart_count)' in source
    assert '"TORCHELASTIC_USE_AGENT_STORE": str(use_agent_store)' in source  # "True", as `process_group` compares it
