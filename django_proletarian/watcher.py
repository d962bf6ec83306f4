"""Calls back when a time has come: one thread for a whole process, there only while it is needed.

Time limits and leases look with it after calls of handlers. It does nothing that could wait, such as asking a database.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

IDLE = 10.0  # seconds after which the thread ends for want of anything to watch; looked at as often


@contextmanager
def watching(at: float, on_due: Callable[[], float]) -> Iterator[None]:
    """Call `on_due` in the watcher's thread at `at`, time.monotonic()'s, if that comes within the block.

    It returns when it is to be called again; infinity for never. It may still be called in the instant in which the
    block ends.
    """
    watched = _Watched(at=at, on_due=on_due)
    _watcher.add(watched)
    try:
        yield
    finally:
        _watcher.remove(watched)


@dataclass(eq=False, slots=True)
class _Watched:
    at: float  # written by the watcher once it is added
    on_due: Callable[[], float]


class _Watcher:
    """The thread, and what it watches."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all below
        self._watched: set[_Watched] = set()
        self._wakes_at = math.inf  # time.monotonic(); a later time is no reason to wake it
        self._thread: threading.Thread | None = None  # while there is one

    def add(self, watched: _Watched) -> None:
        with self._changed:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="proletarian-watcher", daemon=True)
                self._thread.start()
            elif watched.at < self._wakes_at:
                self._changed.notify()

    def remove(self, watched: _Watched) -> None:
        with self._changed:
            self._watched.discard(watched)

    def _run(self) -> None:
        while due := self._wait():
            # Not under the lock, which those that end now want.
            for watched in due:
                at = watched.on_due()
                with self._changed:
                    watched.at = at
                    if at == math.inf:
                        self._watched.discard(watched)

    def _wait(self) -> list[_Watched]:
        """Wait until something is due, and return it. Nothing means: end the thread."""
        with self._changed:
            while True:
                now = time.monotonic()
                due = [watched for watched in self._watched if watched.at <= now]
                if due:
                    return due
                is_idle = not self._watched
                # What ends in time, as nearly all does, does not wake the thread.
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


if hasattr(os, "register_at_fork"):  # pragma: no branch # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
