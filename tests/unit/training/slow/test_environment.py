"""The environment of training: what is set, that whoever set it already decides, and that it does what it is for."""

import ctypes
import os
import subprocess
import sys

import pytest

from bertline.training.environment import environment_for_training

NAMES = ("GOMP_SPINCOUNT", "GLIBC_TUNABLES")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="the C library is not GNU's")
def test_freed_memory_is_met_again_without_page_faults():
    code = """
import ctypes, resource
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def use():
    memory = library.malloc(ctypes.c_size_t(40_000_000))
    ctypes.memset(memory, 1, 40_000_000)
    library.free(memory)
for _ in range(3): use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10): use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    bare = {name: value for name, value in os.environ.items() if name not in NAMES and not name.startswith("MALLOC_")}

    def page_faults(environment):
        return int(subprocess.check_output([sys.executable, "-c", code], env=environment))

    assert page_faults(environment_for_training(bare)) < 1_000 < page_faults(bare)
