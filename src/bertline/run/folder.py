"""A run folder, `runs/STAGE/FINGERPRINT`: who works there, and how the work ended.

One process at a time works in a run folder, and holds its lock, which the system releases however the process ends. A
status says how far it came, for people, for the next command and for MLflow.
"""

import dataclasses
import os
import signal
import socket
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bertline.config import PipelineConfig, pipeline_config
from bertline.foundation.engine import engine_named
from bertline.foundation.errors import ArtifactError, BertlineError, PeerLostError
from bertline.foundation.files import drop_leftovers, lock_file, plain_error, read_json, sha256_of_path, write_json
from bertline.foundation.progress import say, warn
from bertline.foundation.signals import RECEIVED
from bertline.foundation.system_load import load_sampled, node_name
from bertline.foundation.work import Work
from bertline.run.identity import changed_inputs
from bertline.run.provenance import write_provenance
from bertline.run.stopping import named
from bertline.stages.registry import stage_named

FROZEN_CONFIG = "config.yaml"
RESULT_NAME = "result"
_LOCK, _STATUS = "lock", "status.json"
_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """Last status of a run folder. A killed process leaves `running` behind, so trust the lock, not the state."""

    state: Literal["new", "running", "finished", "failed", "stopped"]
    message: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    result_sha256: str | None = None
    """SHA-256 of the folder `result`; None if the run folder has none."""
    started_s: float | None = None
    """When the work began, in seconds since the epoch, and earlier by what was worked before a stop."""
    ended_s: float | None = None
    """When the work ended; None while it runs."""

    @property
    def work_s(self) -> float | None:
        """Seconds of work; None if that is not recorded."""
        if self.started_s is None or self.ended_s is None:
            return None
        return max(0.0, self.ended_s - self.started_s)  # the clock may have been set back


def read_status(folder: Path) -> Status:
    """Return the status of a run folder; `new` if nothing has been done in it."""
    path = folder / _STATUS
    return Status(**read_json(path)) if path.exists() else Status(state="new")


def write_status(folder: Path, status: Status) -> None:
    """Replace the status."""
    write_json(folder / _STATUS, dataclasses.asdict(status))


def finished_status(folder: Path) -> Status | None:
    """Return the status of a run folder whose work is done; None if it is not, or if its result was changed since."""
    status, result = read_status(folder), folder / RESULT_NAME
    if status.state != "finished":
        return None
    if result.is_dir() and sha256_of_path(result) == status.result_sha256:
        say(f"{folder} is finished already; taking its result")
        return status
    warn(f"{result} is not what was written: the work is done again, from its checkpoints where they are")
    return None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder while the block runs, after waiting for a process that works there.

    A file system without locks (some mounts of Lustre) is worked on as if this process were the only one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a+") as handle:
        told = False
        while lock_file(handle) is False:
            if not told:
                handle.seek(0)
                say(f"{handle.read().strip() or 'another process'} works in {folder}; waiting for it (Ctrl-C leaves)")
                told = True
            time.sleep(_LOOK_S)
        for name in (FROZEN_CONFIG, _STATUS):
            drop_leftovers(folder / name)  # of a kill
        handle.truncate(0)
        job = f" of job {os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
        handle.write(f"process {os.getpid()} on {socket.gethostname()}{job}, since {time.strftime('%Y-%m-%d %H:%M')}\n")
        handle.flush()
        yield


def is_locked(folder: Path) -> bool:
    """Return whether a process works in this run folder."""
    if not (folder / _LOCK).exists():
        return False
    with (folder / _LOCK).open("a+") as handle:
        return lock_file(handle, shared=True) is False


@contextmanager
def with_status(folder: Path, config: PipelineConfig, *, num_nodes: int = 1) -> Iterator[dict[str, float]]:
    """Write to the status of `folder`, whose lock is held, how the block ends, and the figures that it adds."""
    before = read_status(folder)
    started_s = time.time() - (before.work_s or 0.0 if before.state in ("stopped", "failed") else 0.0)
    write_status(folder, Status(state="running", started_s=started_s))
    figures: dict[str, float] = {}
    status = Status(state="stopped")
    try:
        with ExitStack() as stack:
            if config.tracking.enabled and config.tracking.system_metrics:
                node = node_name(num_nodes, os.environ)
                stack.enter_context(load_sampled(folder, config.tracking.system_metrics_every_s, node=node))
            yield figures
        result = folder / RESULT_NAME
        digest = sha256_of_path(result) if result.is_dir() else None
        status = Status(state="finished", metrics=figures, result_sha256=digest)
    except PeerLostError as error:
        status = Status(state="stopped", message=str(error))
        raise
    except BertlineError as error:
        status = Status(state="failed", message=str(error) or type(error).__name__)
        raise
    except KeyboardInterrupt as error:
        status = Status(state="stopped", message=str(error) or f"by {named(RECEIVED.first or signal.SIGINT)}")
        raise
    except Exception as error:
        status = Status(state="failed", message=f"{type(error).__name__}: {error}")
        if (plain := plain_error(error)) is not None:
            raise plain from error
        with suppress(OSError):
            traceback.print_exc()
        raise BertlineError(f"{type(error).__name__}: {error} (the traceback is above)") from error
    finally:
        try:
            write_status(folder, dataclasses.replace(status, started_s=started_s, ended_s=time.time()))
        except (BertlineError, OSError) as error:  # a full disk must not hide why the work ended
            warn(f"how the work ended ({status.state}) is not in the status: {error}")


def read_frozen(folder: Path) -> tuple[dict[str, Any], PipelineConfig]:
    """Return what a run folder was opened with: the content of its config.yaml, and the configuration in it."""
    import yaml

    frozen = yaml.safe_load((folder / FROZEN_CONFIG).read_text(encoding="utf-8"))
    return frozen, pipeline_config(frozen["config"])


def work_of(frozen: Mapping[str, Any], config: PipelineConfig, folder: Path, output: Path) -> Work:
    """Return the work that a run folder was opened for."""
    return Work(
        config=config,
        inputs={key: Path(path) for key, path in frozen["inputs"].items()},
        folder=folder,
        output=output,
        commit=frozen["commit"],
        engine=engine_named(config.runtime.engine, config.runtime.num_workers),
        task_name=frozen["task_name"],
    )


def do_work(folder: Path) -> dict[str, float]:
    """Do the work of a run folder whose lock this process holds; return its headline figures."""
    frozen, config = read_frozen(folder)
    stage, work = stage_named(frozen["stage"]), work_of(frozen, config, folder, folder / RESULT_NAME)
    with with_status(folder, config, num_nodes=config.runtime.num_nodes if stage.on_several_devices else 1) as figures:
        _refuse_other_inputs(frozen, work)
        figures |= stage.build(work)
        _refuse_other_inputs(frozen, work)
        write_provenance(folder / RESULT_NAME, frozen, config.runtime)
    return figures


def _refuse_other_inputs(frozen: Mapping[str, Any], work: Work) -> None:
    """Fail if inputs are not what a run folder was opened with: the result may be of the old content or of the new."""
    runs = Path(work.config.runtime.runs_folder)
    if paths := changed_inputs(frozen["made_of"]["inputs"], work.inputs, runs):
        raise ArtifactError(
            f"what {work.folder} was opened with has changed or is gone: {', '.join(paths)}. Run the same command "
            "again: it opens a run for what is there now"
        )
