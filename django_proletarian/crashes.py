"""Counts the attempts that a crash cut off, so that a job which kills its process does not run for ever.

The supervisor reads in the slots of a dead process which jobs it ran. It hands them to a process that lives, where the
thread below settles them as any other failed attempt: retry strategies and failed-job callbacks are the project's code,
which may hang or crash, and never runs in the supervisor.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from uuid import UUID

from django.db import connections

from django_proletarian import log as events
from django_proletarian.attempt import Attempt, Raised, WorkerThread
from django_proletarian.connection import COMMIT, ClaimConnection
from django_proletarian.errors import WorkerCrashed
from django_proletarian.handlers import Handler
from django_proletarian.interrupting import Stop
from django_proletarian.log import EventLog
from django_proletarian.outage import is_permanent, is_transient, pauses
from django_proletarian.slots import Slot
from django_proletarian.store import claim_crashed_job
from django_proletarian.worker import decide_on, note_attempt, run_on_commit, settling, tell_handler
from django_proletarian.worker_options import WorkerOptions

# Seconds that a job may stay locked before it is taken for another worker's: the server lets go of the dead one's lock
# when it sees that the connection is closed, which it does not while it runs a statement.
LOCKED_AT_MOST = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """One job that a dead process was running."""

    job_id: UUID
    attempts: int  # before the one that was cut off
    since: float  # seconds since 1970, when that began
    worker_id: str  # of the process
    how: str  # the process died
    stagger: float  # seconds by which a retry is put off
    leased_from: float | None = None  # process_at before its lease, in seconds since 1970; None without a lease
    died_settling: int = 0  # processes, while they settled this


def settle_crash(options: WorkerOptions, claim: ClaimConnection, crash: Crash, slot: Slot, log: EventLog) -> bool:
    """Count the attempt and decide about the job, unless it has finished, was counted, or is another worker's.

    Returns False if the job is locked, by whomever.
    """
    job, is_locked = claim_crashed_job(claim, options.tables, crash.job_id, crash.attempts, crash.leased_from)
    if job is None:
        return not is_locked
    # One may have died of something else.
    if crash.died_settling > 1:
        log(events.CRASHED_WHILE_SETTLING, job_id=job.job_id, job_type=job.job_type)
        options = without_projects_code(options)
    options = dataclasses.replace(options, worker_id=crash.worker_id)
    thread = WorkerThread(options=options, claim=claim, stop=Stop(), log=log, slot=slot)
    # A callback or a strategy may crash this process too; then the next one knows.
    slot.enter(job.job_id, job.attempts, job.queue, job.job_type, time.time())
    try:
        attempt = Attempt(thread, job)
        outcome = Raised(WorkerCrashed(crash.how, crash.stagger))
        verdict = decide_on(attempt, outcome)
        note_attempt(attempt, outcome, verdict, began=time.monotonic() - (time.time() - crash.since))
        tell_handler(attempt, outcome, verdict)
    finally:
        slot.leave()
    claim.send(*settling(thread, [(attempt, verdict)]), COMMIT)
    run_on_commit(thread, [(attempt, verdict)])
    return True


def without_projects_code(options: WorkerOptions) -> WorkerOptions:
    """Options under which a job is settled and nothing called: no serializer, strategy function or callback.

    One of them has crashed two processes, and would crash one after the other.
    """

    def find_handler(job_type: str) -> Handler | None:
        handler = options.find_handler(job_type)
        if handler is None:
            return None
        strategy = None if callable(handler.retry_strategy) else handler.retry_strategy
        return dataclasses.replace(handler, failed_job=None, retry_strategy=strategy)

    return dataclasses.replace(
        options,
        serializer=_Unread(),
        find_handler=find_handler,
        failed_job=None,
        retry_strategy=None if callable(options.retry_strategy) else options.retry_strategy,
    )


class _Unread:
    """A serializer that leaves payloads alone."""

    def encode(self, value: object) -> str:
        raise NotImplementedError

    def decode(self, text: str) -> object:
        return None


class CrashSettler:
    """A thread that settles the crashes put into `crashes`, one after another, however long the database is away.

    `settled` is called, from the thread, with each that there is nothing more to do about.
    """

    def __init__(
        self, options: WorkerOptions, crashes: SimpleQueue[Crash | None], slot: Slot, settled: Callable[[Crash], object]
    ) -> None:
        self._options = options
        self._crashes = crashes
        self._slot = slot
        self._settled = settled
        self._log = EventLog(queue_worker_id=options.worker_id)
        self._pending: dict[Crash, float] = {}  # with when each is given up, in time.monotonic()'s seconds
        self._stop = threading.Event()
        self._caught_up = threading.Event()  # all that was there at first has been tried, or can't be for now
        self._thread = threading.Thread(target=self._run, name=f"{options.worker_id}-settler", daemon=True)

    def start(self, seconds: float) -> None:
        """Start the thread; wait until it has settled the crashes that are there, or can't, at most `seconds`."""
        self._thread.start()
        self._caught_up.wait(seconds)

    def stop(self, seconds: float) -> None:
        """End the thread between two crashes, waiting for at most so long."""
        self._stop.set()
        self._crashes.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        pause = pauses()
        name = f"{self._options.worker_id}-settler"
        while self._has_work():
            try:
                with ClaimConnection(self._options.database, name) as claim:
                    self._settle_pending(claim)
            except Exception as error:  # noqa: BLE001 # whatever it is, the attempts must be counted some time
                self._caught_up.set()
                if not is_transient(error):
                    self._log(events.JOB_WORKER_ERROR, error=error)
                self._stop.wait(next(pause))
            else:
                pause = pauses()
            finally:
                connections.close_all()

    def _has_work(self) -> bool:
        """Wait until there is a crash to settle; False if the thread is to end."""
        self._receive()
        if not self._pending:
            self._caught_up.set()
            self._add(self._crashes.get())
        return not self._stop.is_set()

    def _settle_pending(self, claim: ClaimConnection) -> None:
        while self._pending and not self._stop.is_set():
            for crash, until in list(self._pending.items()):
                if self._is_done_with(crash, until, claim):
                    del self._pending[crash]
                    self._settled(crash)
            if self._pending:
                self._stop.wait(0.1)
                self._receive()

    def _is_done_with(self, crash: Crash, until: float, claim: ClaimConnection) -> bool:
        try:
            if settle_crash(self._options, claim, crash, self._slot, self._log):
                return True
        except Exception as error:  # one job must not keep the others from being settled
            if is_transient(error) or is_permanent(error):
                raise
            claim.close()
            self._log(events.CRASH_NOT_COUNTED, error=error, job_id=crash.job_id, reason="an error")
            return True
        if time.monotonic() < until:
            return False
        self._log(events.CRASH_NOT_COUNTED, job_id=crash.job_id, reason="another worker has the job")
        return True

    def _receive(self) -> None:
        with suppress(Empty):
            while True:
                self._add(self._crashes.get_nowait())

    def _add(self, crash: Crash | None) -> None:
        if crash is not None:
            self._pending[crash] = time.monotonic() + LOCKED_AT_MOST
