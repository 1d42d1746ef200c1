"""Import this module first: if bertline is not installed, it adds the source of this repository to the path.

It imports bertline, which disables the telemetry of other libraries before they are imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"

if importlib.util.find_spec("bertline") is None:
    sys.path.insert(0, str(SOURCE))
    # So that child processes find it too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))

import bertline  # noqa: E402, F401
