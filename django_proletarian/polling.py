"""What the threads of one queue worker share: whose turn it is to poll, and how many jobs may still be taken."""

from __future__ import annotations

import threading


class PollingTurn:
    """Lets one idle thread poll while the others sleep; whoever finds a job hands the turn on at once.

    So an idle process polls once an interval however many threads it has, and a burst of jobs still wakes them all,
    each thread the next, without waiting for the interval.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._turn = threading.Lock()
        self._hurry = threading.Event()
        self._hurry.set()  # the first thread polls at once

    def wait(self, seconds: float) -> bool:
        """Sleep until it is this thread's turn to poll; False if a stop was asked.

        `seconds` is how long the thread whose turn it is waits for a hurry; 0 polls at once, out of turn.
        """
        if seconds and not self._stop.is_set():
            with self._turn:
                self._hurry.wait(seconds)
                # After a stop the event stays set, so that each sleeper in line wakes the next.
                if not self._stop.is_set():
                    self._hurry.clear()
        return not self._stop.is_set()

    def hand_on(self) -> None:
        """Let the next idle thread, if there is one, poll now."""
        if self._turn.locked() or self._stop.is_set():
            self._hurry.set()


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
