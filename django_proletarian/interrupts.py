"""How a running handler learns that its worker was asked to stop.

A handler that runs for long looks, or waits, here; one that does not may be interrupted, see interrupting.py. The
worker sets `current_stop` around its handlers; the value follows them into the coroutines, and into the threads that
asgiref and asyncio start for them. Into threads of their own it does not, but the `Job` does.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar

# Written by the worker thread that runs the handler, read by the handler. None where no worker runs it.
current_stop: ContextVar[threading.Event | None] = ContextVar("proletarian_stop", default=None)


def stop_requested() -> bool:
    """Whether the worker that runs this handler was asked to stop. False outside a worker."""
    stop = current_stop.get()
    return stop is not None and stop.is_set()


def wait_or_stop(seconds: float) -> bool:
    """Wait for `seconds`, or until the worker is asked to stop; return whether it was.

    A handler that sees True may finish soon, or raise `JobInterrupted` to leave its job in the queue. Outside a worker
    nobody can ask, so it waits for the whole time and returns False.
    """
    stop = current_stop.get()
    return (stop or threading.Event()).wait(seconds)
