"""share: after `dvc push --run-cache`, send what earlier runs left beside it: other clones can take any of them over.

python pipelines/share.py
python pipelines/share.py NAME       # to another remote than the default one

DVC sends outputs that it caches. The figures of a stage are in git and not cached, but an entry of the run cache is
taken over only if they are there: here they are sent from the local cache, which has them, with the outputs of
earlier runs.
"""

import on_ctrl_c  # noqa: F401

# isort: split
import sys
from pathlib import Path
from typing import Any

from bertline.foundation.errors import MachineError
from bertline.foundation.progress import say
from bertline.orchestration.stopping import in_one_line


def send(root: Path, remote: str | None = None) -> tuple[int, int]:
    """Send the objects of every entry of the run cache that is whole; return how many entries, and files new there.

    Args:
        root: Folder of the repository.
        remote: Name of a DVC remote; None is the default one.

    Raises:
        MachineError: There is no such remote, or it did not take a file.
    """
    from dvc.exceptions import DvcException  # after bertline, which turns its reports off
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        runs, here = Path(repo.stage_cache.cache_dir), repo.cache.local
        wanted: set[Any] = set()
        entries = 0
        for path in runs.glob("*/*/*"):
            used = repo.stage_cache.get_used_objs([(path.parent.name, path.name)])
            objects: set[Any] = set().union(*used.values())
            # `dvc gc` deletes objects and leaves the entries that need them.
            if objects and all(here.exists(one.value) for one in objects):
                wanted, entries = wanted | objects, entries + 1
        try:
            sent = repo.cloud.push(wanted, remote=remote)
        except DvcException as error:
            raise MachineError(f"{error}; name a remote that `dvc remote list` shows") from error
    if sent.failed:
        raise MachineError(f"{len(sent.failed)} of {len(wanted)} objects were not sent; run the same command again")
    return entries, len(sent.transferred)


def main(arguments: list[str]) -> None:
    """Send, and print how much."""
    entries, files = send(Path(__file__).resolve().parent.parent, *arguments[:1])
    say(f"the remote has {entries} runs of stages ({files} files were new)")


if __name__ == "__main__":
    in_one_line(lambda: main(sys.argv[1:]))
