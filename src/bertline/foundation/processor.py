"""Name of this machine's processor."""

from __future__ import annotations

import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """Return the model of the processor, such as `AMD EPYC 9B14`; the architecture where the model is not known."""
    lines = _CPUINFO.read_text(encoding="utf-8").splitlines() if _CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
