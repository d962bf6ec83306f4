"""What the threads of one queue worker share: whose turn it is to poll, and how many jobs may still be taken."""

from __future__ import annotations

import threading


class PollingTurn:
    """Lets one idle thread poll while the others sleep; it keeps the turn until it finds a job, then hands it on.

    So an idle process polls once an interval, through one connection, however many threads it has; and a burst of jobs
    still wakes them all, each thread the next, without waiting for the interval.
    """

    def __init__(self, stop: threading.Event, threads: int) -> None:
        self._stop = stop
        self._threads = threads
        self._lock = threading.Lock()  # guards the three below
        self._poller: int | None = None  # the thread whose turn it is
        self._busy: set[int] = set()  # threads between wake() and take(); those that are still to start are idle
        self._hurry = True  # the first thread polls at once
        self._turn_is_free = threading.Condition(self._lock)
        self._no_more_waiting = threading.Condition(self._lock)

    def take(self) -> bool:
        """Sleep until it is this thread's turn to poll; False if a stop was asked."""
        me = threading.get_ident()
        with self._lock:
            self._busy.discard(me)
            self._turn_is_free.wait_for(lambda: self._stop.is_set() or self._poller in (None, me))
            self._poller = me
        return not self._stop.is_set()

    def sleep(self, seconds: float) -> bool:
        """Wait for `seconds`, or less if there is a hurry; return whether there was.

        Called by the thread whose turn it is, which counts as idle until it calls `wake`.
        """
        with self._lock:
            self._no_more_waiting.wait_for(lambda: self._stop.is_set() or self._hurry, seconds)
            hurried, self._hurry = self._hurry, False
        return hurried

    def wake(self) -> None:
        """Count this thread as busy from now on."""
        with self._lock:
            self._busy.add(threading.get_ident())

    def hurry(self) -> None:
        """Let the thread whose turn it is, or will be, poll now."""
        with self._lock:
            self._hurry = True
            self._no_more_waiting.notify()

    def hand_on(self) -> bool:
        """Let the next idle thread poll now: there is a job, or this thread ends, or all do. False if none is idle."""
        with self._lock:
            self._leave()
            self._hurry = len(self._busy) < self._threads
            self._no_more_waiting.notify()
            if self._stop.is_set():
                self._turn_is_free.notify_all()
            return self._hurry

    def leave(self) -> None:
        """Let another idle thread poll when the interval is over. Called by a thread that can't poll just now."""
        with self._lock:
            self._leave()
            self._busy.add(threading.get_ident())

    def _leave(self) -> None:
        if self._poller == threading.get_ident():
            self._poller = None
            self._turn_is_free.notify()


class JobBudget:
    """How many jobs may still be taken; `jobs` None for any number. Shared by all threads of a worker."""

    def __init__(self, jobs: int | None) -> None:
        self._lock = threading.Lock()
        self._left = jobs
        self._closed = False

    def take(self, wanted: int = 1) -> int:
        """Take the right to `wanted` jobs, or to as many as are left; return how many that is."""
        if self._closed:
            return 0
        if self._left is None:
            return wanted
        with self._lock:
            taken = min(wanted, self._left)
            self._left -= taken
            return taken

    def give_back(self, unused: int) -> None:
        """Return rights that were not used."""
        if self._left is not None:
            with self._lock:
                self._left += unused

    def close(self) -> None:
        """Give no more rights away."""
        self._closed = True

    @property
    def spent(self) -> bool:
        """Whether no right is left."""
        return self._closed or self._left == 0
