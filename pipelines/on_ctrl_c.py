"""A signal while a recipe imports its libraries, which takes a second: one line, no traceback. Recipes import it first.

Once everything is imported, `bertline.orchestration.stopping` decides what a signal does. Until then no garbage is
collected either: see `bertline.foundation.importing`.
"""

import atexit
import gc
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
    for _number in _NAMES:
        signal.signal(_number, _end)
    gc.disable()  # `composition.recipe` enables it again; recipes that are none are over in a moment
    atexit.register(gc.freeze)  # else the interpreter looks through all modules as it ends
