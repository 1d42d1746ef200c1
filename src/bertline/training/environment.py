"""The environment that a training process is started in: what is read only at its start, and makes a CPU fast."""

from __future__ import annotations

from collections.abc import Mapping

_GIB = 1 << 30
# Threads wait for one another some sixty times in a step on the CPU. Beside other busy processes spinning meanwhile
# makes the step twice as long or more, and sleeping at once costs a fifth on a quiet machine: so they spin for some
# microseconds and then sleep.
_SPIN = {"GOMP_SPINCOUNT": "1000"}
# The C library gives large pieces of memory back to the system when they are freed, and a step frees all it has made:
# the next one then meets a page fault for every 4 KiB, which is a fifth of its time. So memory is kept, in huge pages
# where the system has them on request.
_TUNABLES = {
    "glibc.malloc.hugetlb": 1,
    "glibc.malloc.mmap_threshold": _GIB,
    "glibc.malloc.trim_threshold": 64 * _GIB,
}
_MEMORY = {"GLIBC_TUNABLES": ":".join(f"{name}={value}" for name, value in _TUNABLES.items())}


def environment_for_training(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with what is missing for speed (measured: notebooks/LOG.md); who sets any of it decides.

    >>> sorted(environment_for_training({"PATH": "/bin"}))
    ['GLIBC_TUNABLES', 'GOMP_SPINCOUNT', 'PATH']
    >>> environment_for_training({"GOMP_SPINCOUNT": "5", "GLIBC_TUNABLES": ""})["GOMP_SPINCOUNT"]
    '5'
    """
    chosen = dict(environment)
    if "OMP_WAIT_POLICY" not in environment:
        chosen = {**_SPIN, **chosen}
    if not any(name.startswith("MALLOC_") for name in environment):
        chosen = {**_MEMORY, **chosen}
    return chosen
