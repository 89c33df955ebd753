"""The one way from async code to anything that can wait: lock, fsync, SQL, a tool."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.lowlevel import RunVar

from kept.core.errors import GivenUp
from kept.core.threads import start_job

T = TypeVar("T")
LOOK_SECONDS = 0.05

_limiter: RunVar[anyio.CapacityLimiter] = RunVar("kept_offload_limiter")
"""One per event loop: a sub-agent has a loop of its own."""
MAX_THREADS = 16


async def offload(work: Callable[..., T], /, *args: Any, abandon: bool = False, **kwargs: Any) -> T:
    """Run `work` in a worker thread; with `abandon` a cancelled caller does not wait for it."""
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
    call = partial(work, *args, **kwargs)
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=abandon, limiter=limiter)


def run_abandonable(work: Callable[[], T]) -> T:
    """Run what may hang, in a thread that is left behind with GivenUp when nobody waits for it any more."""
    job = start_job(work, name="kept-attended")
    while not job.wait(LOOK_SECONDS):
        if is_cancelled():
            raise GivenUp("nobody waits for it any more")
    return job.value()


def is_cancelled() -> bool:
    """Whether the caller that this worker thread works for was cancelled; work that lasts asks now and then."""
    try:
        anyio.from_thread.check_cancelled()
    except asyncio.CancelledError:
        return True
    except RuntimeError:
        return False  # no worker thread: nobody can give up
    return False
