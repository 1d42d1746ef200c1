"""No process outlives the one it works for."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """Make this spawned process end as soon as the process that started it is gone, however it went.

    A killed parent can tell its workers nothing: one that waits for work would wait for ever, and one that works would
    be met by the run that is started after it. In a process that was not spawned by multiprocessing nothing changes.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()
