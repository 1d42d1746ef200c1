"""Import this first: where bertline is not installed, it puts the source of this repository on the path.

It imports bertline, which turns the telemetry of other libraries off before they are imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"

if importlib.util.find_spec("bertline") is None:
    sys.path.insert(0, str(SOURCE))
    # Processes that this one starts find it too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))

import bertline  # noqa: E402, F401
