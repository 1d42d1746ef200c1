"""What ends a recipe before its libraries are imported: one line, no traceback. Recipes import it first.

A signal in the second that the imports take; and an interpreter without bertline, which `.venv/bin/dvc repro` finds
where the environment is not activated, since stages call `python`.

Once everything is imported, `bertline.orchestration.stopping` decides what a signal does. Until then no garbage is
collected either: see `bertline.foundation.importing`.
"""

import atexit
import gc
import importlib.util
import os
import signal
import sys
from pathlib import Path
from types import FrameType

_NAMES = {signal.SIGINT: "SIGINT (Ctrl-C)", signal.SIGTERM: "SIGTERM"}


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, f"stopped by {_NAMES[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


# Importing a recipe, as tests and other recipes do, changes no signals.
if Path(getattr(sys.modules["__main__"], "__file__", "")).resolve().parent == Path(__file__).resolve().parent:
    if importlib.util.find_spec("bertline") is None:
        _install = "" if Path(__file__).resolve().parent.with_name(".venv").exists() else "make install && "
        sys.exit(
            f"error: `python` is {sys.executable} here, in which bertline is not installed. Activate its environment, "
            f"then give the command again: {_install}source .venv/bin/activate"
        )
    for _number in _NAMES:
        signal.signal(_number, _end)
    gc.disable()  # `composition.recipe` enables it again; recipes that are none are over in a moment
    atexit.register(gc.freeze)  # else the interpreter looks through all modules as it ends
