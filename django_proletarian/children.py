"""The supervisor's worker processes, and the seats in which one follows the other.

All that is here waits for nothing; a process may be in any state.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any
from uuid import UUID

from django_proletarian.crashes import Crash
from django_proletarian.slots import JobInSlot, Slots
from django_proletarian.vital_signs import LastPoll
from django_proletarian.worker_process import ExitCode

LONGEST_PAUSE = 30.0  # seconds before a process that dies again and again is started once more
ASK_AGAIN = 1.0  # seconds; a process that was forked a moment ago hears signals with the supervisor's ears
GRACE = 10.0  # seconds after the shutdown timeout; a process that still lives then hangs, and is killed


class Child:
    """One worker process, as its supervisor knows it."""

    def __init__(
        self, process: Any, process_id: UUID, slots: Slots, connection: Connection, max_jobs: int | None
    ) -> None:
        self.process = process
        self.process_id = process_id
        self.pid: int = process.pid  # which a process object that is closed does not tell
        self.worker_id: str = process.name
        self.slots = slots
        self.connection = connection
        self.max_jobs = max_jobs
        self.started_at = time.monotonic()
        self.crashes: set[Crash] = set()  # handed over, not settled yet
        self.stop_by: float | None = None  # time.monotonic(); None while it is not asked to stop
        self.asked_at = 0.0  # time.monotonic() of the last time that it was asked to
        self.is_killed = False
        self.failure: str | None = None  # what it said ended it
        self.overdue: list[JobInSlot] = []  # jobs that ignore their time limits; it is asked to stop because of them
        self._suspected: list[JobInSlot] = []  # the same, at one look

    @property
    def has_polled(self) -> bool:
        return self.slots.polled_at > 0

    @property
    def is_steady(self) -> bool:
        """Whether all there is to expect of it is that it works on."""
        return self.has_polled and self.stop_by is None

    def receive(self) -> None:
        """Read what it has sent."""
        with suppress(EOFError, OSError):
            while self.connection.poll():
                match self.connection.recv():
                    case Crash() as settled:
                        self.crashes.discard(settled)
                    case str() as failure:
                        self.failure = failure

    def hand_over(self, crashes: list[Crash]) -> None:
        """Let it settle these; whether it lives to do so shows in `crashes`."""
        self.crashes.update(crashes)
        with suppress(OSError):
            self.connection.send(crashes)

    def stop(self, timeout: float) -> None:
        """Ask it to stop, within `timeout` seconds."""
        if self.stop_by is None:
            self.stop_by = time.monotonic() + timeout + GRACE

    def press(self) -> bool:
        """Ask once more, if it was asked; kill it when its time is up, and return whether that was now."""
        now = time.monotonic()
        if self.stop_by is None or self.is_killed:
            return False
        if now > self.stop_by:
            self.kill()
            return True
        if now - self.asked_at > ASK_AGAIN:
            self.asked_at = now
            self.process.terminate()
        return False

    def kill(self) -> None:
        self.is_killed = True
        self.process.kill()

    def hangs(self, grace: float) -> bool:
        """Whether jobs have ignored their time limits for `grace` seconds, which is new.

        Seen twice: a slot may be read while it is written.
        """
        suspected, self._suspected = self._suspected, self.slots.overdue(grace)
        if self.overdue or self.is_killed:
            return False
        self.overdue = [job for job in self._suspected if job in suspected]
        return bool(self.overdue)

    @property
    def has_only_overdue_jobs(self) -> bool:
        """Whether the jobs that ignore their time limits are all that keeps it from ending."""
        return bool(self.overdue) and self.slots.threads_left == len(self.still_overdue)

    @property
    def still_overdue(self) -> list[JobInSlot]:
        """Those of the jobs that ignore their time limits which run still, or did to the end."""
        running = self.slots.running
        return [job for job in self.overdue if job in running]

    @property
    def has_crashed(self) -> bool:
        """Whether it ended in a way that neither it nor the supervisor meant."""
        code = self.process.exitcode
        if self.is_killed or code in set(ExitCode) - {ExitCode.ORPHANED}:
            return False
        # One that is told to stop before it can listen dies of the signal; so it may when others tell it.
        return code != -signal.SIGTERM or bool(self.slots.running)


class Seat:
    """A place for one worker process at a time, and for its successor while that starts."""

    def __init__(self, number: int, max_jobs: int | None) -> None:
        self.number = number  # from 1 up
        self.jobs_left = max_jobs  # None for any number
        self.child: Child | None = None
        self.successor: Child | None = None
        self.is_finished = False  # nothing is left to do here
        self.start_at = 0.0  # time.monotonic() of the next start
        self.deaths = 0  # one soon after the other
        self.last_poll = LastPoll()
        self.crashed: deque[UUID] = deque(maxlen=10)  # processes whose rows among the workers are still there, perhaps

    @property
    def children(self) -> list[Child]:
        return [child for child in (self.child, self.successor) if child is not None]


def pause_after(deaths: int) -> float:
    """Seconds before the next start, after so many deaths soon after each other; none after the first."""
    return 0.0 if deaths <= 1 else min(0.1 * 2.0 ** min(deaths - 2, 20), LONGEST_PAUSE)


def how_it_ended(code: int) -> str:
    """What an exit code of a process says, as the end of a sentence."""
    if code < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"
    with suppress(ValueError):
        return {
            ExitCode.ENDED: "ended",
            ExitCode.LEFT_JOBS: "ended, leaving jobs",
            ExitCode.REPLACE: "ended, to be replaced",
            ExitCode.FAILED: "ended by an error",
            ExitCode.ORPHANED: "lost its supervisor",
        }[ExitCode(code)]
    return f"exited with status {code}"
