"""One attempt at a job, from the claimed row on: what the steps in `worker` hand to each other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from django_proletarian.attempts import AttemptRecord
from django_proletarian.connection import ClaimConnection, PrivateConnection
from django_proletarian.handlers import handler_by_payload
from django_proletarian.handlers_connections import HandlersConnections
from django_proletarian.interrupting import Stop
from django_proletarian.job import Job, told_of
from django_proletarian.leases import Lease
from django_proletarian.log import Event, EventLog
from django_proletarian.retry import Verdict
from django_proletarian.running_attempt import RunningAttempt
from django_proletarian.slots import Slot
from django_proletarian.store import ClaimedJob, as_datetime
from django_proletarian.worker_options import WorkerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerThread:
    """What one thread runs its jobs with."""

    options: WorkerOptions
    claim: ClaimConnection
    stop: Stop  # set by whoever asks the worker to stop
    log: EventLog
    slot: Slot  # where it shows which job it runs
    on_decided: OnDecided | None = None
    announce: Announce | None = None
    connections: HandlersConnections = field(default_factory=HandlersConnections)


class Attempt:
    """One run of one claimed job."""

    def __init__(self, thread: WorkerThread, claimed: ClaimedJob) -> None:
        self.thread = thread
        self.claimed = claimed
        self.payload: object = None
        self.unreadable: BaseException | None = None  # why the payload could not be decoded
        self.record: AttemptRecord | None = None  # what is to be kept of it
        self.on_commit: list[Callable[[], object]] = []  # what an atomic handler asked for; filled when it ends
        self.lease: Lease | None = None  # while nobody holds the row's lock
        self.running: RunningAttempt | None = None  # once somebody has asked for the job
        self.state: object = None  # the handler's own
        try:
            self.payload = thread.options.serializer.decode(claimed.payload)
        except Exception as error:  # noqa: BLE001 # a serializer may be the user's, and a bad row must not stop the queue
            self.unreadable = error
        options = thread.options
        by_payload = handler_by_payload(claimed.job_type, self.payload)
        self.handler = by_payload or options.find_handler(claimed.job_type)

    @functools.cached_property
    def job(self) -> Job:
        """The claimed row as a job, this attempt counted. Made when first asked for: most handlers want the payload."""
        job = Job(
            job_id=UUID(self.claimed.job_id),
            queue=self.claimed.queue,
            job_type=self.claimed.job_type,
            payload=self.payload,
            attempts=self.claimed.attempts + 1,
            enqueued_at=as_datetime(self.claimed.enqueued_at),
            process_at=as_datetime(self.claimed.process_at),
        )
        handler, options = self.handler, self.thread.options
        self.running = RunningAttempt(
            self.claimed,
            self.stop,
            worker_id=options.worker_id,
            database=options.database,
            tables=options.tables,
            serializer=options.serializer,
            slot=self.thread.slot,
            lease=self.lease,
            atomic=handler is not None and handler.atomic,
        )
        return told_of(self.running, job)

    @property
    def worker_id(self) -> str:
        return self.thread.options.worker_id

    @property
    def database(self) -> str:
        """The alias of the job's database."""
        return self.thread.options.database

    @property
    def stop(self) -> Stop:
        """What asks the handler to stop."""
        return self.thread.stop if self.lease is None else self.lease.stop

    @property
    def lease_seconds(self) -> float | None:
        """How long a lease the handler asks for; None for none. One that is `atomic` needs the lock and has none."""
        handler = self.handler
        return None if handler is None or handler.atomic or self.unreadable is not None else handler.lease

    def tell(self, event: Event, *, error: BaseException | None = None, **data: object) -> None:
        """Log an event of this job."""
        if event.is_heard:
            job = self.job
            log = self.thread.log.within(job_id=job.job_id, job_type=job.job_type, attempt=job.attempts)
            log(event, error=error, **data)


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler came back."""

    result: object = None


@dataclass(frozen=True, slots=True)
class Raised:
    """The attempt failed with `error`."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The attempt ended because of a stop; `error` is what the handler raised."""

    error: BaseException


Outcome = Returned | Raised | Interrupted
OnDecided = Callable[[Attempt, Outcome, Verdict], object]
# SQL that tells which jobs the process runs now, for the next message.
Announce = Callable[[PrivateConnection], list[str]]
RETURNED = Returned()
