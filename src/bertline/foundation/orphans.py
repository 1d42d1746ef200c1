"""Worker processes that end with their parent process."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """Make this spawned process exit as soon as its parent process ends for any reason.

    A killed parent cannot stop its workers: an idle worker would wait forever, and a busy one would still be running
    when the next run starts. No effect in a process that was not started by multiprocessing.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()
