"""Worker threads: the only way from async code to anything that blocks (lock, fsync, SQL, a tool)."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.lowlevel import RunVar

from wellkept.core.errors import GivenUp
from wellkept.core.threads import start_job

T = TypeVar("T")
POLL_SECONDS = 0.05
"""How often to check whether the caller was cancelled."""

_limiter: RunVar[anyio.CapacityLimiter] = RunVar("kept_offload_limiter")
"""One limiter per event loop; a sub-agent has its own loop."""
_reserved: RunVar[anyio.CapacityLimiter] = RunVar("kept_reserved_limiter")
MAX_THREADS = 16
"""Enough for the parallel tool calls of one answer; more calls wait for a free thread."""
RESERVED_THREADS = 4


async def offload(
    work: Callable[..., T], /, *args: Any, abandon: bool = False, reserved: bool = False, **kwargs: Any
) -> T:
    """Run `work` in a worker thread; with `abandon`, a cancelled caller does not wait for the result.

    With `reserved` it runs in threads that no other work can occupy: a server uses them to identify its callers.
    """
    limits, most = (_reserved, RESERVED_THREADS) if reserved else (_limiter, MAX_THREADS)
    limiter = limits.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(most)
        limits.set(limiter)
    call = partial(work, *args, **kwargs)
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=abandon, limiter=limiter)


def run_abandonable(work: Callable[[], T]) -> T:
    """Run `work` in a daemon thread; if the caller is cancelled, raise GivenUp and do not wait for it."""
    job = start_job(work, name="kept-abandonable")
    while not job.wait(POLL_SECONDS):
        if is_cancelled():
            raise GivenUp("the caller was cancelled")
    return job.value()


def is_cancelled() -> bool:
    """Whether the caller of this worker thread was cancelled; long work should check it regularly."""
    try:
        anyio.from_thread.check_cancelled()
    except asyncio.CancelledError:
        return True
    except RuntimeError:
        return False  # not a worker thread, so there is no caller to be cancelled
    return False
