"""Interrupts calls of handlers that run for too long.

The worker puts a `TimeLimit` around the call of a handler that has one; a job without costs nothing here. A call that
does not heed its interrupt can't be ended from within its process. That is the supervisor's to do, which reads in the
slot when the time was up, and so sees it also while a call in C keeps all of Python from running.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from django_proletarian.errors import JobTimeout
from django_proletarian.interrupting import Interruptible
from django_proletarian.watcher import watching


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """How long the call of a job's handler may take, and who is told about it."""

    seconds: float
    grace: float  # seconds after its interrupt in which a call should have ended
    note: Callable[[float], object]  # called with time.monotonic() of the limit, and with 0 when the call has ended
    on_ignored: Callable[[], object]  # called once, from the watcher's thread, if the call goes on after the grace

    @contextmanager
    def around(self, call: Interruptible) -> Iterator[None]:
        """Raise JobTimeout in `call`, which runs inside, when the time is up."""
        at = time.monotonic() + self.seconds
        is_interrupted = False

        def on_due() -> float:
            nonlocal is_interrupted
            if is_interrupted:
                self.on_ignored()
                return math.inf
            is_interrupted = True
            # A call that has ended meanwhile sees to it itself that nothing is raised any more.
            call.interrupt(JobTimeout)
            return at + self.grace

        self.note(at)
        try:
            with watching(at, on_due):
                yield
        finally:
            self.note(0)


def as_seconds(given: object) -> float | None:
    """Seconds from what `@job_handler` was given; None for None, infinity for no limit. Raises ValueError."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ValueError(f"{given!r} is no timedelta, or number of seconds, above zero")
    # No thread can wait for longer, nor lives so long.
    return math.inf if seconds > threading.TIMEOUT_MAX else float(seconds)
