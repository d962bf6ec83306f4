"""Interrupts calls of handlers that run for too long: one thread for a whole process, there only while it is needed.

The worker puts a `TimeLimit` around the call of a handler that has one; a job without costs nothing here. A call that
does not heed its interrupt can't be ended from within its process. That is the supervisor's to do, which reads in the
slot when the time was up, and so sees it also while a call in C keeps all of Python from running.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from django_proletarian.errors import JobTimeout
from django_proletarian.interrupting import Interruptible

IDLE = 10.0  # seconds after which the thread ends for want of calls; looked at as often


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
        watched = _Watched(at=time.monotonic() + self.seconds, call=call, limit=self)
        self.note(watched.at)
        _watcher.add(watched)
        try:
            yield
        finally:
            _watcher.remove(watched)
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


@dataclass(eq=False, slots=True)
class _Watched:
    """One call with a limit. All but `at` and `is_interrupted`, which are the watcher's, never change."""

    at: float  # time.monotonic() of what is to happen to it next
    call: Interruptible
    limit: TimeLimit
    is_interrupted: bool = field(default=False)


class _Watcher:
    """The thread, and the calls that it watches."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all below
        self._watched: set[_Watched] = set()
        self._wakes_at = math.inf  # time.monotonic(); a later limit is no reason to wake it
        self._thread: threading.Thread | None = None  # while there is one

    def add(self, watched: _Watched) -> None:
        with self._changed:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="proletarian-time-limits", daemon=True)
                self._thread.start()
            elif watched.at < self._wakes_at:
                self._changed.notify()

    def remove(self, watched: _Watched) -> None:
        with self._changed:
            self._watched.discard(watched)

    def _run(self) -> None:
        while due := self._wait():
            # Not under the lock, which those calls that end now want. A call that has ended meanwhile sees to it itself
            # that nothing is raised any more.
            for watched in due:
                if watched.is_interrupted:
                    watched.limit.on_ignored()
                else:
                    watched.is_interrupted = True
                    watched.call.interrupt(JobTimeout)
                    self._watch_on(watched)

    def _watch_on(self, watched: _Watched) -> None:
        with self._changed:
            watched.at += watched.limit.grace
            if watched.at == math.inf:
                self._watched.discard(watched)

    def _wait(self) -> list[_Watched]:
        """Wait until something is due; take that which was interrupted before out. Nothing means: end the thread."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = [watched for watched in self._watched if watched.at <= now]
                if due:
                    self._watched.difference_update(watched for watched in due if watched.is_interrupted)
                    return due
                is_idle = not self._watched
                # A call that ends in time, as nearly all do, does not wake the thread.
                self._wakes_at = min([now + IDLE, *(watched.at for watched in self._watched)])
                self._changed.wait(self._wakes_at - now)
                if is_idle and not self._watched and time.monotonic() >= self._wakes_at:
                    self._thread = None
                    return []


_watcher = _Watcher()


def _after_fork() -> None:
    # The thread is not there in a child process, and its lock may have been held.
    global _watcher  # noqa: PLW0603
    _watcher = _Watcher()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
