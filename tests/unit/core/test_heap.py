"""A process that lives long keeps one heap."""

import subprocess
import sys

import pytest

from wellkept.core.threads import share_one_heap

_COUNT_HEAPS = """
import ctypes, re, sys, threading
from wellkept.core.threads import share_one_heap

if sys.argv[1] == "shared":
    share_one_heap()
alloc = ctypes.CDLL(None).malloc
alloc.restype = ctypes.c_void_p
meet = threading.Barrier(6)

def work():
    meet.wait()
    alloc(100_000)
    meet.wait()

threads = [threading.Thread(target=work) for _ in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, stream)
libc.fflush(stream)
"""


@pytest.mark.skipif(not share_one_heap(), reason="this C library has no such option")
def test_threads_share_one_heap():
    """Six threads that allocate at once make heaps of their own, and one when it is shared."""
    own, shared = (_heaps(mode) for mode in ("own", "shared"))

    assert shared == 1
    assert own > 1


def _heaps(mode):
    asked = [sys.executable, "-c", _COUNT_HEAPS, mode]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.count("<heap ")
