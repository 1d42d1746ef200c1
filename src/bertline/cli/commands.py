"""Subcommands of a few lines each."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import bertline
from bertline.cli.composition import composing, run_composed
from bertline.cli.project import of_caller
from bertline.config import sections_in
from bertline.foundation.errors import ArtifactError, ConfigError, MachineError
from bertline.foundation.progress import say


def doctor(arguments: list[str]) -> None:
    """Check a machine before the first run on it; the first command on a new cluster.

        bertline doctor                                        this machine and the present configuration
        bertline doctor model=base runtime.num_devices=8       as a run with these choices would use it
        bertline doctor --json                                 for programs
        srun --nodes=2 --ntasks-per-node=8 bertline doctor     every task checks, the first one prints

    A line is ok, or RED with the sentence that fixes it. The exit status is 0 if nothing is red, else 1. What is
    written for a trial is deleted.
    """

    def examined(composed: dict[str, Any]) -> None:
        from bertline.doctor import examine

        status = examine(sections_in(composed), as_json="--json" in arguments)
        sys.stdout.flush()
        os._exit(status)  # whatever hangs in its threads

    run_composed(examined, [argument for argument in arguments if argument != "--json"])


@composing()
def corpus_dry_run(composed: dict[str, Any]) -> None:
    """Print what the corpus stage would drop, by reason, with up to five samples of each; keeps nothing.

    bertline corpus-dry-run corpus=text corpus.path=data/text corpus.near_duplicates.threshold=0.7
    """
    from bertline.corpus.build import build_corpus
    from bertline.corpus.quality.drops import DROPS_NAME, drops_in_words, lines_of_drops, names_of_files
    from bertline.foundation.engine import engine_named
    from bertline.foundation.files import read_json

    config = sections_in(composed)
    if config.corpus.kind == "none":
        say("corpus.kind is none: there is nothing to drop")
        return
    runtime = config.runtime
    with tempfile.TemporaryDirectory(prefix="bertline-corpus-dry-run-") as folder:
        out = Path(folder) / "corpus"
        engine = engine_named(runtime.engine, runtime.num_workers)
        build_corpus(config.corpus, config.python_docs, out, engine=engine, work=out.with_name("work"))
        drops = read_json(out / DROPS_NAME)
    for line in lines_of_drops(drops):
        say(line)
    say(f"dry run: {drops_in_words(drops['counts'], names_of_files(drops))}; the corpus was not kept")


@composing("promote")
def promote_version(composed: dict[str, Any]) -> None:
    """Make a version of a task's model the champion by hand, with a reason that is stored with it.

    bertline promote task_name=docs_library version=3 reason="better on rare labels, see the report of 3 May"
    bertline promote task_name=encoder version=2 reason="the first one trained on the whole corpus"
    """
    config, task = sections_in(composed), composed["task_name"]
    if task != "encoder" and task not in config.tasks:
        raise ConfigError(f"task_name is {task!r}; expected encoder or one of {', '.join(config.tasks)}")
    from bertline.tracking.registry import promote

    name = config.export.model_name if task == "encoder" else f"{config.export.model_name}-{task}"
    reason = "" if composed["reason"] is None else str(composed["reason"])
    alias = config.export.champion_alias
    before, after = promote(config.tracking, name, version=str(composed["version"]), alias=alias, reason=reason)
    say(f"{name}, {alias}: was {before}")
    say(f"{name}, {alias}: is {after}")
    say(f"reason: {reason.strip()}")


@composing()
def send(composed: dict[str, Any]) -> None:
    """Send to the tracking server what it did not take while stages ran, each record once.

    bertline send                                      all run folders below runs/
    bertline send runtime.runs_folder=/scratch/runs
    """
    from bertline.tracking.sending import send_all
    from bertline.tracking.tracked_runs import RUNS_NAME

    folders = sorted(path.parent for path in Path(sections_in(composed).runtime.runs_folder).glob(f"*/*/{RUNS_NAME}"))
    if unsent := send_all(folders):
        raise MachineError(
            f"the tracking server lacks records of {len(unsent)} of {len(folders)} run folders: "
            f"{', '.join(map(str, unsent))}. Run this again when it can be reached."
        )
    say(f"the tracking server has everything of {len(folders)} run folders")


@composing("ui")
def ui(composed: dict[str, Any]) -> None:
    """Print the addresses of prepared views, and serve MLflow on this machine's loopback address until Ctrl-C.

        bertline ui                    the report, pretraining curves, best models, failed trials
        bertline ui open=true          opens them in a browser
        bertline ui port=5001

    If tracking.uri is a server, its addresses are printed. The exit status is that of `mlflow ui`.
    """
    from bertline.tracking.registry import prepared_pages

    config, port = sections_in(composed), composed["port"]
    tracking = config.tracking
    names = {"prefix": f"{config.export.model_name}-", "champion": config.export.champion_alias}
    if tracking.uri.startswith(("http://", "https://")):
        say(f"runs are recorded by the server at {tracking.uri}")
        _show(prepared_pages(tracking, tracking.uri.rstrip("/"), **names), opened=composed["open"])
        return
    pages = prepared_pages(tracking, f"http://127.0.0.1:{port}", **names)
    command = ["mlflow", "ui", "--backend-store-uri", tracking.uri, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--uvicorn-opts", "--log-level warning"]  # a line for every request would bury the addresses
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
    # `mlflow ui` starts processes of its own: a signal is for all of them.
    with subprocess.Popen([sys.executable, "-m", *command], env=quiet, start_new_session=True) as server:
        try:
            _wait(server, pages[0][1])
            _show(pages, opened=composed["open"])
            sys.exit(server.wait())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)


def _show(pages: Sequence[tuple[str, str]], *, opened: bool) -> None:
    width = max(len(title) for title, _ in pages)
    for title, address in pages:
        say(f"{title:{width}}  {address}")
    say("(MLflow's plain start page is for language-model traces; these addresses choose its model training pages)")
    for _, address in pages if opened else ():
        webbrowser.open(address)


def _wait(server: subprocess.Popen[bytes], address: str) -> None:
    """Wait until the server answers or has ended."""
    started = time.monotonic()
    while server.poll() is None and time.monotonic() - started < 300:
        with suppress(URLError, OSError):
            urlopen(address.partition("#")[0], timeout=1).close()
            return
        time.sleep(0.2)


TOKEN = "HF_TOKEN"
# What torch, joblib and pickle write: it can run any code when it is loaded.
PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"})


@composing("push")
def push(asked: dict[str, Any]) -> None:
    """Upload an exported model folder to the Hugging Face hub.

        HF_TOKEN=... bertline push folder=artifacts/export/encoder name=OWNER/NAME
        HF_TOKEN=... bertline push folder=artifacts/export/docs_library name=OWNER/NAME public=true

    The repository is made if there is none, private unless public=true is given. The same command again uploads what
    has changed. The token, with permission to write, comes from the environment and is never printed. Folders with
    pickled weights are refused.
    """
    folder = of_caller(asked["folder"])
    is_model = any((folder / name).is_file() for name in ("config.json", "linear.json"))
    if not is_model or not (folder / "model.safetensors").is_file():
        raise ArtifactError(
            f"{folder} is no exported model: config.json or model.safetensors is missing. Name a folder of "
            "artifacts/export, or the one that `bertline finetune` printed."
        )
    pickles = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in PICKLES)
    if pickles:
        raise ArtifactError(
            f"{folder} has pickled files, which can run any code when they are loaded: {', '.join(pickles)}. Delete "
            "them; the weights are in model.safetensors."
        )
    say(f"{folder} is at {upload(folder, asked['name'], public=asked['public'])}")


def upload(folder: Path, name: str, *, public: bool) -> str:
    """Upload a folder to a repository of the hub, which is made if there is none; return its address."""
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        raise ConfigError(
            f"{TOKEN} is not set. Make a token with permission to write at https://huggingface.co/settings/tokens and "
            f"give it in the environment: export {TOKEN}=..."
        )
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, HTTPError  # HTTPError is that of its HTTP client

    api = HfApi(token=token)
    try:
        repository = api.create_repo(name, private=not public, exist_ok=True)
        if not public and not api.model_info(repository.repo_id).private:
            raise ConfigError(f"{name} is a public repository. Add public=true if that is meant, or name another.")
        message = f"Upload with bertline {bertline.__version__}"
        api.upload_folder(repo_id=repository.repo_id, folder_path=folder, commit_message=message)
    except HFValidationError as error:
        raise ConfigError(f"{name!r} is no name for a repository: {error}") from error
    except (HTTPError, OSError) as error:
        reason = " ".join(str(error).split()).replace(token, "***")
        raise MachineError(
            f"the hub at {api.endpoint} did not take {name}: {reason}. If it refuses the token in {TOKEN}, "
            "make one with permission to write, as OWNER; else give the same command again, which resumes."
        ) from error
    return str(repository)
