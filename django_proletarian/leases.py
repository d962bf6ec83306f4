"""Leases: jobs that run while no transaction is open, each put off for a while that is extended as long as it runs.

The worker begins one for a job whose handler asks for it, and ends it when the handler has ended. A lease is ours as
long as the row has the very process_at that was written last. One thread for each process and database extends leases,
there only while jobs are leased; it may wait for a server that does not answer. So the watcher, which waits for
nobody, tells the handler when the lease has run out.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

import psycopg
from django.db import Error as DjangoDatabaseError
from django.db.backends.utils import CursorWrapper

from django_proletarian.connection import COMMIT, PrivateConnection
from django_proletarian.errors import LeaseLost
from django_proletarian.interrupting import Interruptible, Stop
from django_proletarian.outage import is_transient, pauses
from django_proletarian.store import ClaimedJob, LeaseRow, extend_lease, hold_leased_job, resume_leased_job
from django_proletarian.tables import Tables
from django_proletarian.watcher import watching

SHORTEST = 1.0  # seconds
ENDS_WITHIN = 1.0  # seconds in which the thread that extends leases ends after the last of them
GIVE_BACK_WITHIN = 2.0  # seconds that a process which ends may take to give its jobs back

DATABASE_ERRORS = (psycopg.Error, DjangoDatabaseError)


class Lease:
    """One leased job. Made and ended by the worker thread that runs it."""

    def __init__(
        self,
        job: ClaimedJob,
        seconds: float,
        *,
        until: int,
        at: int,
        asked_at: float,
        tables: Tables,
        clock: Callable[[], datetime | None],
        raises: bool,
    ) -> None:
        """`until` and `at`, the time when it began, are as `store.begin_lease` returned them, `asked_at` when it was
        called, by time.monotonic(). Unless it `raises`, its handler is only asked to stop when it is lost.
        """
        self.job = job
        self.seconds = seconds
        self.stop = Stop()  # the handler's: when the worker is to stop, or the lease is lost
        self.is_lost = False  # told to the handler; written by whichever thread finds out
        self.is_over = False  # settled or given up: nobody extends it any more
        self.beat_at = asked_at + seconds / 3  # time.monotonic(); the keeper's
        self._tables = tables
        self._clock = clock
        self._raises = raises
        self._call: Interruptible | None = None  # while the handler runs
        # Guards the next three, and is held while the row is changed, so that nobody extends what another settles.
        self._lock = threading.Lock()
        self._until: tuple[int, ...] = (until,)  # see LeaseRow
        self._at, self._asked_at = at, asked_at  # the same moment by the database's clock and by time.monotonic()
        self.runs_out_at = asked_at + seconds  # time.monotonic(), and never later than by the database's clock

    # -- For the handler ---------------------------------------------------------------------------------------------

    @contextmanager
    def around(self, call: Interruptible) -> Iterator[None]:
        """Interrupt `call`, which runs inside, when the lease is lost."""
        self._call = call
        try:
            if self.is_lost:
                call.interrupt(LeaseLost)
            with watching(self.runs_out_at, self._look):
                yield
        finally:
            self._call = None

    def _look(self) -> float:
        """See whether it has run out; return when to look again. Called by the watcher."""
        if time.monotonic() < self.runs_out_at:
            return self.runs_out_at  # it was extended
        self.lose()
        return math.inf

    def lose(self) -> None:
        """Tell the handler that the job is not this worker's any more. Any thread may."""
        self.is_lost = True
        self.stop.set()
        call = self._call
        if call is not None and self._raises:
            call.interrupt(LeaseLost)

    def hold(self, cursor: CursorWrapper) -> bool:
        """Lock the row until the transaction ends; False, of which the handler is told, if the lease is not ours."""
        # While it has not run out nobody else has the row for long.
        if not self.is_lost and time.monotonic() < self.runs_out_at:
            with self._lock:
                if hold_leased_job(cursor, self._tables, self.row):
                    return True
        self.lose()
        return False

    @property
    def row(self) -> LeaseRow:
        """What the job's row looks like while the lease is ours."""
        return LeaseRow(self.job.job_id, self.job.attempts + 1, self._until)

    # -- For the keeper ----------------------------------------------------------------------------------------------

    def extend(self, connection: PrivateConnection) -> None:
        """Put the job off for another lease's length, and find out whether it is still ours. Raises database errors."""
        now = time.monotonic()
        self.beat_at = now + min(1.0, self.seconds / 10)  # for now; while it can't be extended
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self.is_over or self.is_lost:
                return
            # Reckoned here, so that it is known even if the answer is lost: until the next one the row may have either.
            until = self._at + int((now - self._asked_at + self.seconds) * 1e6)
            row, self._until = self.row, (*self._until, until)
            extended, ours, at = extend_lease(connection, self._tables, row, until, self._clock())
            if extended:
                self._until, self._at, self._asked_at = (until,), at, now
                self.runs_out_at = now + (until - at) / 1e6
                self.beat_at = now + self.seconds / 3
            elif not ours:
                self.lose()
        finally:
            self._lock.release()

    # -- For the worker thread ---------------------------------------------------------------------------------------

    def resume(self, connection: PrivateConnection, on_error: Callable[[Exception], object]) -> bool:
        """Begin a transaction with the job locked as it was claimed; False if it is another's now.

        While the database is away it is tried again until the lease has run out, then the error is raised; `on_error`
        is told of each.
        """
        for pause in pauses():
            try:
                with self._held_or_too_late():
                    left = self.runs_out_at - time.monotonic()
                    return resume_leased_job(connection, self._tables, self.row, self.job.process_at, max(1.0, left))
            except Exception as error:
                connection.close()
                if not is_transient(error) or time.monotonic() > self.runs_out_at:
                    raise
                on_error(error)
            time.sleep(min(pause, 1.0))
        raise AssertionError  # there is always another pause

    @contextmanager
    def _held_or_too_late(self) -> Iterator[None]:
        """Hold the lock, if it comes free before the lease runs out.

        It does not if the keeper waits for a server that does not answer, nor if an exception from another thread has
        come just as a handler had taken it. Then nobody extends the lease any more, and its row is known all the same.
        """
        has_lock = self._lock.acquire(timeout=max(1.0, self.runs_out_at - time.monotonic()))
        try:
            yield
        finally:
            if has_lock:
                self._lock.release()

    def give_back(self, connection: PrivateConnection) -> None:
        """Put the job back as it was claimed, if it is still ours: it is due at once, and this attempt never was."""
        with self._held_or_too_late():
            if not self.is_over:
                self.is_over = True
                if resume_leased_job(connection, self._tables, self.row, self.job.process_at, seconds=1.0):
                    connection.send(COMMIT)


class Keeper:
    """The thread that extends the leases of this process's jobs in one database."""

    def __init__(self, database: str, name: str) -> None:
        self._changed = threading.Condition()  # guards the next two
        self._leases: set[Lease] = set()
        self._thread: threading.Thread | None = None  # while there are leases
        self._database, self._name = database, name

    @contextmanager
    def keeping(self, lease: Lease) -> Iterator[None]:
        """Extend the lease until the block ends."""
        with self._changed:
            self._leases.add(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            else:
                self._changed.notify()
        try:
            yield
        finally:
            lease.is_over = True
            with self._changed:
                self._leases.discard(lease)
                thread = None if self._leases else self._thread
                self._changed.notify()
            if thread is not None:
                # So that no connection is left of a worker that has ended, unless its server does not answer.
                thread.join(ENDS_WITHIN)

    def give_back(self) -> None:
        """Give all jobs back that are leased now: the process is about to end."""
        with self._changed:
            leases = list(self._leases)
        with PrivateConnection(self._database, self._name) as connection:
            for lease in leases:
                lease.lose()
                lease.give_back(connection)

    def _run(self) -> None:
        # Opened when the first lease is extended, which most jobs don't run long enough for.
        with PrivateConnection(self._database, self._name) as connection:
            while due := self._wait():
                for lease in due:
                    try:
                        lease.extend(connection)
                    except DATABASE_ERRORS:
                        # The polling threads tell of an outage, and the watcher sees when it has lasted too long.
                        connection.close()

    def _wait(self) -> list[Lease]:
        """Wait until leases are to be extended, and return them. Nothing means: there are none, end the thread."""
        with self._changed:
            while self._leases:
                now = time.monotonic()
                due = [lease for lease in self._leases if lease.beat_at <= now]
                if due:
                    return due
                self._changed.wait(min(lease.beat_at - now for lease in self._leases))
            self._thread = None
            return []


# By database; shared by all worker threads of the process.
_keepers: dict[str, Keeper] = {}
_keepers_lock = threading.Lock()


def keeper(database: str, worker_id: str) -> Keeper:
    """The keeper of leases in `database`; the first worker that asks gives it its name."""
    with _keepers_lock:
        if database not in _keepers:
            _keepers[database] = Keeper(database, f"{worker_id}-heartbeat-leases")
        return _keepers[database]


def give_back_leased_jobs() -> None:
    """Give back the jobs that are leased, as far as that can be done soon, before the process ends with them running.

    Otherwise nobody would run them before their leases run out.
    """

    def give_back() -> None:
        with suppress(*DATABASE_ERRORS):
            for each in list(_keepers.values()):
                each.give_back()

    if _keepers:
        thread = threading.Thread(target=give_back, name="giving-back", daemon=True)
        thread.start()
        thread.join(GIVE_BACK_WITHIN)


def _after_fork() -> None:
    # The threads are not there in a child process, nor are their connections its own.
    global _keepers_lock  # noqa: PLW0603
    _keepers_lock = threading.Lock()
    _keepers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
