"""Environment of a training process: settings that are read only at process start and speed up the CPU."""

from __future__ import annotations

from collections.abc import Mapping

_GIB = 1 << 30
# On the CPU, threads wait for one another about sixty times per step. Next to other busy processes, spinning while they
# wait makes a step at least twice as long; sleeping at once costs a fifth on an idle machine. So they spin for a few
# microseconds and then sleep.
_SPIN = {"GOMP_SPINCOUNT": "1000"}
# The C library returns large blocks of memory to the system when they are freed, and a step frees all that it
# allocated: the next step then takes a page fault for every 4 KiB, a fifth of its time. So memory is kept, in huge
# pages where the system provides them on request.
_TUNABLES = {
    "glibc.malloc.hugetlb": 1,
    "glibc.malloc.mmap_threshold": _GIB,
    "glibc.malloc.trim_threshold": 64 * _GIB,
}
_MEMORY = {"GLIBC_TUNABLES": ":".join(f"{name}={value}" for name, value in _TUNABLES.items())}


def environment_for_training(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with missing settings for speed added (measured: notebooks/LOG.md); set ones are kept.

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
