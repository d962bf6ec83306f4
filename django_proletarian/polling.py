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
        self._busy: set[int] = set()  # threads outside wait(); those that are still to start are idle
        self._hurry = True  # the first thread polls at once
        self._turn_is_free = threading.Condition(self._lock)
        self._no_more_waiting = threading.Condition(self._lock)

    def wait(self, seconds: float) -> bool:
        """Sleep until it is this thread's turn to poll; False if a stop was asked.

        `seconds` is how long the thread whose turn it is waits for a hurry; 0 polls at once, out of turn.
        """
        if seconds:
            me = threading.get_ident()
            with self._lock:
                self._busy.discard(me)
                self._turn_is_free.wait_for(lambda: self._stop.is_set() or self._poller in (None, me))
                self._poller = me
                self._no_more_waiting.wait_for(lambda: self._stop.is_set() or self._hurry, seconds)
                self._hurry = False
                self._busy.add(me)
        return not self._stop.is_set()

    def hand_on(self) -> None:
        """Let the next idle thread, if there is one, poll now: there is a job, or this thread ends, or all do."""
        with self._lock:
            self._leave()
            self._hurry = len(self._busy) < self._threads
            self._no_more_waiting.notify()
            if self._stop.is_set():
                self._turn_is_free.notify_all()

    def leave(self) -> None:
        """Let another idle thread poll when the interval is over. Called by a thread that can't poll just now."""
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        if self._poller == threading.get_ident():
            self._poller = None
            self._turn_is_free.notify()


class JobBudget:
    """How many jobs may still be taken; `jobs` None for any number. Shared by all threads of a worker."""

    def __init__(self, jobs: int | None) -> None:
        self._lock = threading.Lock()
        self._left = jobs

    def take(self) -> bool:
        """Claim the right to one job; False if none is left."""
        if self._left is None:
            return True
        with self._lock:
            if self._left == 0:
                return False
            self._left -= 1
            return True

    def give_back(self) -> None:
        """Return a right that was not used."""
        if self._left is not None:
            with self._lock:
                self._left += 1

    @property
    def spent(self) -> bool:
        """Whether no right is left."""
        return self._left == 0
