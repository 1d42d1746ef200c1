"""Subcommands of a few lines each: doctor, corpus-dry-run, average, promote, send, share, curve."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bertline.cli.composition import composing, run_composed, sections_in
from bertline.cli.project import of_caller
from bertline.foundation.errors import ConfigError, MachineError
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


def average(arguments: list[str]) -> None:
    """Write the mean of the weights of a checkpoint and of what was trained from it (WiSE-FT, arXiv 2109.01903).

        bertline average BEFORE AFTER FOLDER
        bertline average /path/to/checkpoint artifacts/pretrain data/averaged --share 0.25

    BEFORE is the model folder that the training started from, AFTER that of its result, FOLDER is written. `--share`
    is the weight of AFTER in the mean, 0 to 1; 0.5 if it is left out.
    """
    parser = argparse.ArgumentParser(prog="bertline average", add_help=False)
    parser.add_argument("before", type=of_caller)
    parser.add_argument("after", type=of_caller)
    parser.add_argument("folder", type=of_caller)
    parser.add_argument("--share", type=float, default=0.5)
    parsed = parser.parse_args(arguments)
    from bertline.modeling.averaging import average_encoders

    folder = parsed.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already. Name a new folder; nothing was written.")
    average_encoders(parsed.before, parsed.after, folder, share=parsed.share)
    say(f"averaged: {folder} (name it in pretrain.start_from, or in start_from= of `bertline finetune`)")


@composing("promote")
def promote(composed: dict[str, Any]) -> None:
    """Make a version of a task's model the champion by hand, with a reason that is stored with it.

    bertline promote task_name=docs_library version=3 reason="better on rare labels, see the report of 3 May"
    bertline promote task_name=encoder version=2 reason="the first one trained on the whole corpus"
    """
    config, task = sections_in(composed), composed["task_name"]
    if task != "encoder" and task not in config.tasks:
        raise ConfigError(f"task_name is {task!r}; expected encoder or one of {', '.join(config.tasks)}")
    from bertline.tracking.registry import promote as move_alias

    name = config.export.model_name if task == "encoder" else f"{config.export.model_name}-{task}"
    reason = "" if composed["reason"] is None else str(composed["reason"])
    alias = config.export.champion_alias
    before, after = move_alias(config.tracking, name, version=str(composed["version"]), alias=alias, reason=reason)
    say(f"{name}, {alias}: was {before}")
    say(f"{name}, {alias}: is {after}")
    say(f"reason: {reason.strip()}")


@composing()
def send(composed: dict[str, Any]) -> None:
    """Send to the tracking server what it did not take while stages ran, each record once.

    bertline send                                      all run folders below runs/
    bertline send runtime.runs_folder=/scratch/runs
    """
    from bertline.tracking.record import RECORD_NAME
    from bertline.tracking.sending import send_all

    folders = sorted(path.parent for path in Path(sections_in(composed).runtime.runs_folder).glob(f"*/*/{RECORD_NAME}"))
    if unsent := send_all(folders):
        raise MachineError(
            f"the tracking server lacks records of {len(unsent)} of {len(folders)} run folders: "
            f"{', '.join(map(str, unsent))}. Run this again when it can be reached."
        )
    say(f"the tracking server has everything of {len(folders)} run folders")


def share(arguments: list[str]) -> None:
    """After `dvc push --run-cache`, send what earlier runs left beside it: other clones can take any of them over.

        bertline share
        bertline share REMOTE       to another remote than the default one

    DVC sends outputs that it caches. The figures of a stage are in git and not cached, but an entry of the run cache
    is taken over only if they are there: here they are sent from the local cache, with the outputs of earlier runs.
    """
    if len(arguments) > 1:
        raise ConfigError(f"{' '.join(arguments)}: name one remote, or none for the default one")
    num_entries, num_new_files = send_run_cache(Path.cwd(), *arguments)
    say(f"the remote has {num_entries} runs of stages ({num_new_files} files were new)")


def send_run_cache(root: Path, remote: str | None = None) -> tuple[int, int]:
    """Send the whole entries of the run cache to a remote (None: DVC's default); return how many, and files new there.

    Raises:
        MachineError: DVC is busy, there is no such remote, or it did not take a file.
    """
    from dvc.exceptions import DvcException  # after bertline, which turns its reports off
    from dvc.lock import LockError
    from dvc.repo import Repo

    from bertline.cli.dvc_lock_hint import dvc_lock_hint

    try:
        with Repo(str(root)) as repo:
            runs, here = Path(repo.stage_cache.cache_dir), repo.cache.local
            wanted: set[Any] = set()
            num_entries = 0
            for path in runs.glob("*/*/*"):
                used = repo.stage_cache.get_used_objs([(path.parent.name, path.name)])
                objects: set[Any] = set().union(*used.values())
                # `dvc gc` deletes objects and leaves the entries that need them.
                if objects and all(here.exists(one.value) for one in objects):
                    wanted, num_entries = wanted | objects, num_entries + 1
            sent = repo.cloud.push(wanted, remote=remote)
    except LockError as error:
        raise MachineError(dvc_lock_hint(root) or str(error)) from error
    except DvcException as error:
        raise MachineError(f"{error}. `dvc remote list` shows the remotes that can be named") from error
    if sent.failed:
        raise MachineError(f"{len(sent.failed)} of {len(wanted)} objects were not sent; run the same command again")
    return num_entries, len(sent.transferred)


@composing("reference_curve")
def curve(composed: dict[str, Any]) -> None:
    """Ship the curves of a finished pretraining with bertline, to be drawn behind others in the report.

    bertline curve run=runs/pretrain/FINGERPRINT name=docs_tiny device="2 CPU cores"
    """
    from bertline.evaluation.reference import reference_of_run, write_reference
    from bertline.run.provenance import git_commit

    commit, path = composed["commit"] or git_commit(), _REFERENCE_CURVES / f"{composed['name']}.json"
    run = of_caller(composed["run"])
    content = reference_of_run(run, name=composed["name"], device=composed["device"], commit=commit)
    write_reference(path, content)
    last = {key: points[-1][1] for key, points in content["curves"].items() if points}
    say(f"{path}: " + ", ".join(f"{key} {value:.4g}" for key, value in last.items()))


_REFERENCE_CURVES = Path("src/bertline/evaluation/reference_curves")
