"""The public face: enqueue jobs, make a worker. Handlers are declared with `decorators`."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import SynchronousOnlyOperation
from django.db import ProgrammingError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.utils.connection import ConnectionDoesNotExist

from django_proletarian import conf, immediate, inserts, names
from django_proletarian.errors import DuplicateJob, EnqueueError
from django_proletarian.handlers import FailedJobCallback, Handler
from django_proletarian.new_jobs import NewJob, OnConflict, makers, queue_and_job_type, row_of, rows_of, writes_json
from django_proletarian.outage import how_to_make_tables, is_missing_table
from django_proletarian.queue_worker import QueueWorker
from django_proletarian.retry import RetryStrategyFunction, RetryStrategyLike
from django_proletarian.suggestions import did_you_mean
from django_proletarian.tables import Tables
from django_proletarian.worker_options import WorkerOptions

ROWS_AT_ONCE = 1000
WORTH_A_COPY = 3000  # jobs; a COPY takes three round trips, however many rows it brings


# -- Enqueue ---------------------------------------------------------------------------------------------------------


def enqueue(
    job_type: str | Handler,
    payload: object = None,
    *,
    queue: str | None = None,
    process_at: datetime | None = None,
    process_in: timedelta | None = None,
    priority: int = 0,
    job_id: UUID | str | None = None,
    on_conflict: OnConflict = "error",
    using: str | None = None,
) -> UUID:
    """Put a job in the queue with one INSERT in the caller's transaction, and return its id.

    `job_type` is a name or a decorated handler. `queue` None means the handler's own queue, else the QUEUE setting.
    The job is due at once, at `process_at` (aware, or naive local time if USE_TZ is off) or `process_in` from now; a
    time in the past means at once, and `process_at` counts if both are given. Among due jobs of a queue the highest
    `priority`, from 100 down to -100, runs first: see the module `priorities`. `job_id` None takes one from the
    JOB_ID_STRATEGY setting. `using` None asks the routers for the database of `Job`.

    Never begins or commits. Raises EnqueueError (PayloadEncodeError for the payload), before any SQL, for what no row
    can hold, and DuplicateJob if the id is in the queue already, unless `on_conflict` is "ignore"; none of these harms
    the caller's transaction.

    Source: proletarian/job.clj, enqueue!.
    """
    _check_conflict_rule(on_conflict)
    given = NewJob(job_type, payload, queue, process_at, process_in, job_id, priority)
    return _enqueue(given, using, on_conflict)


def enqueue_dated(given: NewJob, *, using: str | None) -> tuple[UUID, datetime]:
    """`enqueue`, for callers who want to know the job's enqueued_at too, as the database dates it."""
    told: list[datetime] = []
    job_id = _enqueue(given, using, told=told)
    return job_id, told[0]


def _enqueue(
    given: NewJob, using: str | None, on_conflict: OnConflict = "error", told: list[datetime] | None = None
) -> UUID:
    row = row_of(*queue_and_job_type(given.job_type, given.queue, given.priority), given, *makers())
    database, connection = _connection(using, frames=3)
    settings, now = conf.settings(), conf.now()
    tracing = conf.tracing()
    try:
        if tracing is None:
            inserted = inserts.insert_job(connection, settings.tables, row, now, told=told)
        else:
            with tracing.enqueuing([row], may_mark=writes_json()) as [row]:
                inserted = inserts.insert_job(connection, settings.tables, row, now, told=told)
    except (ProgrammingError, SynchronousOnlyOperation) as error:
        _add_remedy(error, database)
        raise
    if not inserted and on_conflict == "error":
        raise _duplicate(row.job_id)
    if settings.immediate:
        _run_at_commit(database, [row])
    return row.job_id


def enqueue_many(
    jobs: Iterable[NewJob | tuple[str | Handler, object]],
    *,
    on_conflict: OnConflict = "error",
    using: str | None = None,
) -> list[UUID]:
    """Put many jobs in the queue, all or none, in one round trip for each thousand; return their ids in order.

    Each is a `NewJob`, or just `(job_type, payload)`. All are checked before the first is sent. Outside a transaction
    they get one of their own. Raises what `enqueue` raises.
    """
    _check_conflict_rule(on_conflict)
    rows, own_ids = rows_of(jobs)
    ids = [row.job_id for row in rows]
    if own_ids and on_conflict == "error" and len(set(ids)) < len(ids):
        raise _duplicate(Counter(ids).most_common(1)[0][0])
    database, connection = _connection(using)
    settings, now = conf.settings(), conf.now()
    # Only an id of the caller's can be taken already; then a savepoint undoes the jobs before it, and nothing else.
    wants_block = own_ids or len(ids) > ROWS_AT_ONCE
    block = transaction.atomic(using=database, savepoint=own_ids) if wants_block else nullcontext()
    tracing = conf.tracing()
    span = nullcontext(rows) if tracing is None else tracing.enqueuing(rows, may_mark=writes_json())
    try:
        with span as marked, block, connection.cursor() as cursor:
            if len(ids) >= WORTH_A_COPY and not own_ids:
                inserts.copy_jobs(cursor, settings.tables, marked, now)
            else:
                _insert(cursor, settings.tables, marked, now, on_conflict)
    except (ProgrammingError, SynchronousOnlyOperation) as error:
        _add_remedy(error, database)
        raise
    if settings.immediate:
        _run_at_commit(database, rows)
    return ids


def _insert(
    cursor: CursorWrapper, tables: Tables, rows: Sequence[inserts.JobRow], now: datetime | None, on_conflict: OnConflict
) -> None:
    for start in range(0, len(rows), ROWS_AT_ONCE):
        chunk = rows[start : start + ROWS_AT_ONCE]
        inserted = inserts.insert_jobs(cursor, tables, chunk, now)
        if on_conflict == "error" and len(inserted) < len(chunk):
            raise _duplicate(next(row.job_id for row in chunk if row.job_id not in inserted))


def _run_at_commit(database: str, rows: Iterable[inserts.JobRow]) -> None:
    """Run the jobs when the caller's transaction is committed; now without one."""
    for row in rows:
        run = functools.partial(immediate.run_when_committed, database, names.from_stored(row.queue), row.job_id)
        transaction.on_commit(run, using=database)


async def aenqueue(
    job_type: str | Handler,
    payload: object = None,
    *,
    queue: str | None = None,
    process_at: datetime | None = None,
    process_in: timedelta | None = None,
    priority: int = 0,
    job_id: UUID | str | None = None,
    on_conflict: OnConflict = "error",
    using: str | None = None,
) -> UUID:
    """`enqueue` for coroutines: in Django's thread for this request, and so in the transaction that is open there."""
    return await sync_to_async(enqueue)(
        job_type,
        payload,
        queue=queue,
        process_at=process_at,
        process_in=process_in,
        priority=priority,
        job_id=job_id,
        on_conflict=on_conflict,
        using=using,
    )


async def aenqueue_many(
    jobs: Iterable[NewJob | tuple[str | Handler, object]],
    *,
    on_conflict: OnConflict = "error",
    using: str | None = None,
) -> list[UUID]:
    """`enqueue_many` for coroutines."""
    return await sync_to_async(enqueue_many)(jobs, on_conflict=on_conflict, using=using)


def _check_conflict_rule(on_conflict: str) -> None:
    if on_conflict not in ("error", "ignore"):
        raise EnqueueError(f'on_conflict must be "error" or "ignore", not {on_conflict!r}.')


def _connection(using: str | None, *, frames: int = 2) -> tuple[str, BaseDatabaseWrapper]:
    # `frames` is how many calls above is the caller's code.
    # With its alias, since in an `atomic` handler the connection is the claim's, which has another.
    if not apps.ready and not apps.stored_app_configs:  # which tests have that change INSTALLED_APPS
        _tell_that_it_is_too_early(frames)
    alias = alias_of_jobs(using)
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist as error:
        known = ", ".join(connections)
        raise EnqueueError(
            f'There is no database "{alias}". {did_you_mean(alias, connections)}DATABASES has: {known}.'
        ) from error
    if connection.vendor != "postgresql":
        raise EnqueueError(
            f'Database "{alias}" is {connection.vendor}, and jobs live in PostgreSQL only. Give using="…", the name of '
            "a PostgreSQL database, or route django_proletarian there with a DATABASE_ROUTERS entry."
        )
    return alias, connection


def alias_of_jobs(using: str | None) -> str:
    """The database that is meant: `using`, else the routers'. Raises EnqueueError if our app is not installed."""
    if using is not None:
        return using
    try:
        # By name, since models are a layer above.
        return router.db_for_write(apps.get_model("django_proletarian", "Job"))
    except LookupError as error:
        raise EnqueueError('Add "django_proletarian" to INSTALLED_APPS: jobs are rows in its tables.') from error


def _tell_that_it_is_too_early(frames: int) -> None:
    """Raise EnqueueError while modules are imported; in an app's `ready` warn, as Django does of any query there."""
    if not apps.models_ready:
        raise EnqueueError(
            "A job was enqueued while Django is still importing apps and models, from a module's top level. "
            "Enqueue in a view, a command, a signal or a handler."
        )
    warnings.warn(
        "A job was enqueued in an AppConfig.ready(): each process enqueues it again when it starts, every manage.py "
        "command too, and migrate before there are tables. Enqueue it in a command of your own, once.",
        RuntimeWarning,
        stacklevel=frames + 2,
    )


def _add_remedy(error: ProgrammingError | SynchronousOnlyOperation, alias: str) -> None:
    """Say beneath an error that is not ours what to do about it here."""
    if isinstance(error, SynchronousOnlyOperation):
        error.add_note("In a coroutine: await aenqueue(...), or await handler.aenqueue(...).")
    elif is_missing_table(error):
        error.add_note(f'The tables are missing in database "{alias}". {how_to_make_tables(alias)}')


def _duplicate(job_id: UUID) -> DuplicateJob:
    return DuplicateJob(
        f'A job with id {job_id} is in the queue already. Give another job_id, or on_conflict="ignore" to leave it.'
    )


def create_queue_worker(
    queues: str | Iterable[str] | None = None,
    *,
    database: str | None = None,
    threads: int | None = None,
    polling_interval: float | timedelta | None = None,
    batch_size: int | None = None,
    shutdown_timeout: float | timedelta | None = None,
    retry_strategy: RetryStrategyLike | RetryStrategyFunction = None,
    failed_job: FailedJobCallback | None = None,
    on_polling_error: Callable[[BaseException], object] | None = None,
    on_shutdown: Callable[[], object] | None = None,
    clock: Callable[[], datetime | None] | None = None,
    worker_id: str | None = None,
    drain: bool = False,
    max_jobs: int | None = None,
) -> QueueWorker:
    """A queue worker for programs that run one themselves; `proletarian_worker` is the command that does.

    What is None comes from the settings (`database`: from the routers). Bare numbers are seconds. Several queues are
    drained in the order given. `drain` ends the worker when nothing is due, `max_jobs` after so many jobs. Nothing
    runs before `start()`. Raises ValueError for options that can't be.

    Source: proletarian/worker.clj, create-queue-worker.
    """
    options = worker_options(
        queues=[queues] if isinstance(queues, str) else queues,
        database=database,
        threads=threads,
        polling_interval=polling_interval,
        batch_size=batch_size,
        shutdown_timeout=shutdown_timeout,
        retry_strategy=retry_strategy,
        failed_job=failed_job,
        on_polling_error=on_polling_error,
        on_shutdown=on_shutdown,
        clock=clock,
        worker_id=worker_id,
        drain=drain,
        max_jobs=max_jobs,
    )
    return QueueWorker(options)


def worker_options(*, database: str | None = None, **given: Any) -> WorkerOptions:
    """What `create_queue_worker` makes a worker from; `given` are its arguments, `queues` always a list or None."""
    return conf.worker_options(database=_connection(database)[0], **given)
