"""Run the jobs that a test has enqueued, or one handler alone: by the worker's own code, in the test's thread."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, LiteralString, TypeVar, overload
from uuid import UUID, uuid4

from django.conf import settings as django_settings
from django.db import transaction
from django.utils import timezone

from django_proletarian import conf, names, signals
from django_proletarian.api import worker_options
from django_proletarian.attempt import Attempt, Outcome, Returned, WorkerThread
from django_proletarian.borrowed_connection import BorrowedConnection, claim_connection
from django_proletarian.calling import call_handler
from django_proletarian.connection import ClaimConnection, Statement
from django_proletarian.decorators import JobHandler
from django_proletarian.event_loop import event_loop_closed_after
from django_proletarian.handlers import Handler
from django_proletarian.handlers_connections import CallersConnections
from django_proletarian.immediate import run_job
from django_proletarian.interrupting import Stop
from django_proletarian.job import Job
from django_proletarian.log import EventLog
from django_proletarian.retry import GaveUp, LeftInQueue, RetryAfter, Succeeded, Verdict
from django_proletarian.slots import Slots
from django_proletarian.store import ClaimedJob
from django_proletarian.tables import for_tables
from django_proletarian.worker_options import WorkerOptions

T = TypeVar("T")
Ending = Literal["success", "retry", "failure", "interrupted"]
ENDINGS: dict[type, Ending] = {
    Succeeded: "success",
    RetryAfter: "retry",
    GaveUp: "failure",
    LeftInQueue: "interrupted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One attempt at one job that `run_jobs` made."""

    job: Job  # with this attempt counted
    outcome: Ending
    error: BaseException | None = None  # what the handler raised
    result: object = None  # what it returned
    retry_in: timedelta | None = None  # after what time the job is due again; None if it is not tried again


def run_jobs(
    queue: str | None = None,
    until_empty: bool = True,
    raise_errors: bool = True,
    *,
    now: datetime | None = None,
    most: int = 1000,
    using: str | None = None,
) -> list[JobRun]:
    """Run the jobs that are due, as a worker does, and return what happened to each, in order.

    `queue` None means every queue. Of what is due the highest priority runs first. Jobs and retries that come due
    meanwhile run too, unless `until_empty` is False.
    With `now`, jobs that are due by then run, and that is when they finish and from when retries count. Within a
    transaction, as in a TestCase, all of it takes place there; outside, jobs are committed. `using` None asks the
    routers for the database.

    The first error of a handler is raised when its job is settled, or that of a callback or a retry strategy; with
    `raise_errors` False all jobs run, and the errors are in what is returned. Raises RuntimeError if there is no end
    after `most` jobs.
    """
    options = _options(using, now)
    runs: list[JobRun] = []
    tried: list[UUID] = []
    with claim_connection(options.database, options.worker_id) as claim, _errors_beside() as errors:

        def note(attempt: Attempt, outcome: Outcome, verdict: Verdict) -> None:
            runs.append(_run(attempt, outcome, verdict))

        # One at a time, since a job may bring another that is due before the rest.
        at_once = 1 if until_empty else None
        while due := _due_jobs(claim, options, queue, tried, at_once):
            for job_queue, job_id in due:
                if len(runs) >= most:
                    raise RuntimeError(
                        f"run_jobs has run {most} jobs, and there are more: {runs[-1].job.job_type} was the last. "
                        "If no job enqueues itself for ever, give more: run_jobs(most=…)."
                    )
                before = len(runs)
                run_job(options, claim, job_queue, job_id, on_decided=note)
                if len(runs) == before or runs[-1].outcome == "interrupted":
                    tried.append(job_id)  # another has it, or it stays as it is
                if raise_errors:
                    _raise_first(runs[before:], errors)
            if not until_empty:
                break
    return runs


DUE_JOBS: LiteralString = """
SELECT queue, job_id
  FROM {job}
 CROSS JOIN LATERAL (
    SELECT CASE WHEN queue <> ALL ($5) THEN substring(queue FROM '[+-](?:[1-9][0-9]?|100)$')::int END AS priority
  ) AS told
 WHERE process_at <= COALESCE($1, statement_timestamp())
   AND ($2 IS NULL OR queue = ANY ($2))
   AND job_id <> ALL ($3)
 ORDER BY COALESCE(priority, 0) DESC, process_at, enqueued_at, {job}.ctid
 LIMIT $4
"""


def _due_jobs(
    claim: ClaimConnection, options: WorkerOptions, queue: str | None, but: list[UUID], most: int | None
) -> list[tuple[str, UUID]]:
    # On the claim's connection, so that assertNumQueries counts what handlers ask, and nothing of ours.
    types = ("timestamptz", "text[]", "uuid[]", "int8", "text[]")
    statement = Statement("due_jobs", types, for_tables(DUE_JOBS, options.tables))
    stored = None if queue is None else [names.to_stored(name) for name in (queue, *conf.levels_of([queue]))]
    own = [names.to_stored(name) for name in options.own_queues]
    rows = claim.send(claim.inline(statement, options.now(), stored, but, most, own))
    return [(names.from_stored(stored), UUID(job_id)) for stored, job_id in rows]


def _run(attempt: Attempt, outcome: Outcome, verdict: Verdict) -> JobRun:
    return JobRun(
        job=attempt.job,
        outcome=ENDINGS[type(verdict)],
        error=None if isinstance(outcome, Returned) else outcome.error,
        result=outcome.result if isinstance(outcome, Returned) else None,
        retry_in=verdict.delay if isinstance(verdict, RetryAfter) else None,
    )


def _raise_first(runs: list[JobRun], errors: list[BaseException]) -> None:
    for run in runs:
        if errors:
            raise errors[0] from run.error  # nobody tests for these
        if run.error is not None:
            run.error.add_note(
                f"Raised by job {run.job.job_type}, attempt {run.job.attempts}; outcome: {run.outcome}. "
                "run_jobs(raise_errors=False) returns errors instead."
            )
            raise run.error


@contextmanager
def _errors_beside() -> Iterator[list[BaseException]]:
    """Errors of callbacks and retry strategies of the jobs that this thread runs, which a worker only logs."""
    errors: list[BaseException] = []
    thread = threading.get_ident()

    def note(exception: BaseException, **kwargs: Any) -> None:
        if threading.get_ident() == thread:
            errors.append(exception)

    told = (signals.retry_strategy_error, signals.failed_job_callback_error, signals.on_commit_exception)
    for signal in told:
        signal.connect(note)
    try:
        yield errors
    finally:
        for signal in told:
            signal.disconnect(note)


@overload
def perform_job(
    handler: JobHandler[..., Coroutine[Any, Any, T]],
    payload: object = None,
    attempts: int = 1,
    *,
    using: str | None = None,
) -> T: ...
@overload
def perform_job(
    handler: JobHandler[..., T], payload: object = None, attempts: int = 1, *, using: str | None = None
) -> T: ...
@overload
def perform_job(
    handler: Handler | str, payload: object = None, attempts: int = 1, *, using: str | None = None
) -> Any: ...
def perform_job(handler: Handler | str, payload: object = None, attempts: int = 1, *, using: str | None = None) -> Any:
    """Call a handler as a worker would, without a job in the queue, and return what it returns; raise what it raises.

    `handler` is a decorated function or a job type. The payload is encoded and decoded, so that the handler gets what a
    row would give it, and what no row can hold is a PayloadEncodeError. `attempts` counts this attempt too. An `atomic`
    handler gets its transaction, on the database `using`, None for the routers'.
    """
    if attempts < 1:
        raise ValueError(f"attempts is {attempts!r}, which is below 1: it counts this attempt too.")
    options = _options(using, None)
    job_type = handler.job_type if isinstance(handler, Handler) else handler
    found = handler if isinstance(handler, Handler) else conf.handler_of(handler)
    options = dataclasses.replace(options, find_handler=lambda job_type: found)
    now = (options.now() or datetime.now(UTC)).timestamp()
    claimed = ClaimedJob(
        job_id=str(uuid4()),
        queue=(found.queue if found is not None else None) or conf.settings().queue,
        job_type=job_type,
        payload=options.serializer.encode(payload),
        attempts=attempts - 1,
        enqueued_at=now,
        process_at=now,
        is_archived=False,
    )
    in_block = transaction.get_connection(options.database).in_atomic_block
    claim = BorrowedConnection(options.database) if in_block else _NoClaim(options.database, options.worker_id)
    log, slot = EventLog(queue_worker_id=options.worker_id), Slots.private(1).slot(1)
    with event_loop_closed_after(), claim:
        connections = CallersConnections()
        thread = WorkerThread(options=options, claim=claim, stop=Stop(), log=log, slot=slot, connections=connections)
        attempt = Attempt(thread, claimed)
        result = call_handler(attempt)
        for callback in attempt.on_commit:
            with thread.connections:
                callback()
    return result


class _NoClaim(ClaimConnection):
    """In place of a connection that holds a job: there is none, and no transaction."""

    @contextmanager
    def lent_to_handler(self, on_commit: list[Callable[[], object]]) -> Iterator[None]:
        with transaction.atomic(using=self.database):
            yield


def _options(using: str | None, now: datetime | None) -> WorkerOptions:
    options = worker_options(database=using, queues=None, worker_id="run_jobs")
    if now is None:
        return options
    if not isinstance(now, datetime) or (timezone.is_naive(now) and django_settings.USE_TZ):
        raise ValueError(f"now is {now!r}, not an aware datetime. For example: timezone.now() + timedelta(days=1).")
    aware = timezone.make_aware(now) if timezone.is_naive(now) else now
    return dataclasses.replace(options, clock=lambda: aware)
