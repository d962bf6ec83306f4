"""The public face: enqueue jobs, declare their handlers, make a worker.

Everything that can be wrong with a job is found here, before any SQL, so that the caller's transaction survives it.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from inspect import unwrap
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, Unpack, overload
from uuid import UUID

from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import SynchronousOnlyOperation
from django.db import ProgrammingError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.utils import timezone
from django.utils.connection import ConnectionDoesNotExist

from django_proletarian import conf, immediate, inserts, names, priorities
from django_proletarian.errors import DuplicateJob, EnqueueError, InvalidHandler
from django_proletarian.handlers import FailedJobCallback, Handler, handler_of, register
from django_proletarian.job import Job
from django_proletarian.leases import SHORTEST
from django_proletarian.outage import how_to_make_tables, is_missing_table
from django_proletarian.queue_worker import QueueWorker
from django_proletarian.retry import LONGEST_DELAY, RetryStrategyFunction, RetryStrategyLike, as_strategy
from django_proletarian.serializers import Serializer
from django_proletarian.signatures import check_takes
from django_proletarian.suggestions import did_you_mean
from django_proletarian.tables import Tables
from django_proletarian.time_limits import as_seconds
from django_proletarian.typing_variables import Parameters, Result_co
from django_proletarian.worker_options import WorkerOptions

T = TypeVar("T")
OnConflict = Literal["error", "ignore"]
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
    row = _row(*_stored_names(given.job_type, given.queue, given.priority), given, *_makers())
    database, connection = _connection(using, frames=3)
    settings, now = conf.settings(), conf.now()
    tracing = conf.tracing()
    try:
        if tracing is None:
            inserted = inserts.insert_job(connection, settings.tables, row, now, told=told)
        else:
            with tracing.enqueuing([row], may_mark=_writes_json()) as [row]:
                inserted = inserts.insert_job(connection, settings.tables, row, now, told=told)
    except (ProgrammingError, SynchronousOnlyOperation) as error:
        _add_remedy(error, database)
        raise
    if not inserted and on_conflict == "error":
        raise _duplicate(row.job_id)
    if settings.immediate:
        _run_at_commit(database, [row])
    return row.job_id


class EnqueueOptions(TypedDict, total=False):
    """What `enqueue` takes beside a job type and a payload."""

    queue: str | None
    process_at: datetime | None
    process_in: timedelta | None
    priority: int
    job_id: UUID | str | None
    on_conflict: OnConflict
    using: str | None


class NewJob(NamedTuple):  # which is made in a fifth of the time of a dataclass
    """A job for `enqueue_many`; the fields are the arguments of `enqueue`."""

    job_type: str | Handler
    payload: object = None
    queue: str | None = None
    process_at: datetime | None = None
    process_in: timedelta | None = None
    job_id: UUID | str | None = None
    priority: int = 0


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
    rows, own_ids = _rows(jobs)
    ids = [row.job_id for row in rows]
    if own_ids and on_conflict == "error" and len(set(ids)) < len(ids):
        raise _duplicate(Counter(ids).most_common(1)[0][0])
    database, connection = _connection(using)
    settings, now = conf.settings(), conf.now()
    # Only an id of the caller's can be taken already; then a savepoint undoes the jobs before it, and nothing else.
    wants_block = own_ids or len(ids) > ROWS_AT_ONCE
    block = transaction.atomic(using=database, savepoint=own_ids) if wants_block else nullcontext()
    tracing = conf.tracing()
    span = nullcontext(rows) if tracing is None else tracing.enqueuing(rows, may_mark=_writes_json())
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


def _rows(jobs: Iterable[NewJob | tuple[str | Handler, object]]) -> tuple[list[inserts.JobRow], bool]:
    """Rows to be, in the same order, and whether any has an id of the caller's.

    Raises EnqueueError for what no row can hold.
    """
    stored_names: dict[tuple[object, ...], tuple[str, str]] = {}  # many jobs, few names: each is checked once
    new_id, serializer = _makers()
    rows = []
    own_ids = False
    for given in jobs:
        # Not all of them first: each object that waits makes Python's garbage collector slower.
        job = given if isinstance(given, NewJob) else _new_job(given)
        own_ids = own_ids or job.job_id is not None
        # With their types, since a PlainName equals the str that is stored otherwise.
        asked = (job.job_type, type(job.job_type), job.queue, type(job.queue), job.priority, type(job.priority))
        try:
            stored = stored_names[asked]
        except (KeyError, TypeError):  # new, or not even hashable
            stored = stored_names[asked] = _stored_names(job.job_type, job.queue, job.priority)
        rows.append(_row(*stored, job, new_id, serializer))
    return rows, own_ids


def _new_job(given: object) -> NewJob:
    if isinstance(given, tuple) and len(given) <= len(NewJob._fields):
        return NewJob(*given)
    raise EnqueueError(
        f"enqueue_many takes NewJob(...)s or (job_type, payload) tuples, and was given a {type(given).__name__}. "
        "One job is enqueued with enqueue."
    )


def _makers() -> tuple[Callable[[], UUID], Serializer]:
    """What makes new ids and encodes payloads."""
    return conf.resolved("JOB_ID_STRATEGY"), conf.serializer()


def _row(queue: str, job_type: str, job: NewJob, new_id: Callable[[], UUID], serializer: Serializer) -> inserts.JobRow:
    return inserts.JobRow(
        _checked_id(new_id() if job.job_id is None else job.job_id),
        queue,
        job_type,
        _encoded(serializer, job.payload),
        None if job.process_at is None else _process_at(job.process_at),
        None if job.process_in is None else _process_in(job.process_in),
    )


def _stored_names(given: str | Handler, queue: str | None, priority: int) -> tuple[str, str]:
    """Queue and job type as a row has them."""
    job_type = given.job_type if isinstance(given, Handler) else _name("job_type", given)
    handler = given if isinstance(given, Handler) else handler_of(job_type)
    if queue is None:
        queue = handler.queue if handler is not None else None
    queue = conf.settings().queue if queue is None else _name("queue", queue)
    try:
        level = priorities.level(queue, priority)
    except ValueError as error:
        raise EnqueueError(f"{error}.") from error
    return names.to_stored(level), names.to_stored(job_type)


def _encoded(serializer: Serializer, payload: object) -> str:
    text = serializer.encode(payload)
    if not isinstance(text, str):
        raise EnqueueError(
            f"{type(serializer).__name__}.encode returned a {type(text).__name__}; it must return a str."
        )
    return _storable("payload, as encoded,", text)


def _writes_json() -> bool:
    return bool(getattr(conf.serializer(), "is_json", False))


def _name(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise EnqueueError(f"{what} must be a str, not {name!r}.{_how_to_name(what, name)}")
    if name in ("", ":") and not isinstance(name, names.PlainName):
        raise EnqueueError(f'{what} is empty. Give it a name such as "shop/mail".')
    return name if name.isascii() and name.isprintable() else _storable(f"{what} {name!r}", name)


def _how_to_name(what: str, given: object) -> str:
    if what == "queue":
        return ""
    if given is None:
        return " Give the handler itself: enqueue(send_receipt, payload), not what it returns."
    return " Decorate the function with @job_handler, and give what that makes of it." if callable(given) else ""


def _storable(what: str, text: str) -> str:
    if "\x00" in text:
        raise EnqueueError(f"{what} has a NUL character, which PostgreSQL can't store in a text. Take it out.")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EnqueueError(
            f"{what} has half of a surrogate pair at character {error.start}, which is no text. Decode it properly."
        ) from error
    return text


def _checked_id(job_id: UUID | str) -> UUID:
    if isinstance(job_id, UUID):
        return job_id
    try:
        return UUID(job_id)
    except (ValueError, TypeError, AttributeError) as error:
        raise EnqueueError(f"job_id {job_id!r} is no UUID. Give a uuid.UUID, or None for a new one.") from error


def _process_at(process_at: datetime) -> datetime:
    if not isinstance(process_at, datetime):
        raise EnqueueError(f"process_at must be a datetime, not {process_at!r}. For a delay give process_in.")
    if timezone.is_naive(process_at):
        if django_settings.USE_TZ:
            raise EnqueueError(
                f"process_at {process_at.isoformat()} has no time zone. "
                "Give an aware datetime, for example django.utils.timezone.now() + timedelta(hours=1)."
            )
        process_at = timezone.make_aware(process_at, timezone.get_default_timezone())
    try:
        return process_at.astimezone(UTC)
    except (OverflowError, ValueError) as error:
        raise EnqueueError(f"process_at {process_at!r} is, in UTC, outside the years 1 to 9999.") from error


def _process_in(process_in: timedelta) -> timedelta:
    if not isinstance(process_in, timedelta):
        raise EnqueueError(f"process_in must be a timedelta, not {process_in!r}. For seconds: timedelta(seconds=5).")
    if process_in > LONGEST_DELAY:
        raise EnqueueError(f"process_in {process_in} is longer than {LONGEST_DELAY.days} days.")
    return max(process_in, timedelta(0))


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


# -- Handlers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class JobHandler(Handler, Generic[Parameters, Result_co]):
    """What `@job_handler` makes of a function: it can still be called, and it can enqueue jobs for itself.

    Type checkers know how it is called, and that the payload of its jobs is what it takes.
    """

    def __post_init__(self) -> None:
        # What functools.update_wrapper does, which a frozen dataclass keeps out.
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(self.function, name):
                vars(self)[name] = getattr(self.function, name)
        vars(self)["__wrapped__"] = self.function

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result_co:
        result: Result_co = self.function(*args, **kwargs)
        return result

    # `self` is seen as what it can be called with, which is its payload, or its job if it is `advanced`.
    @overload
    def enqueue(  # type: ignore[misc] # mypy does not see that this is such a callable
        self: Callable[[Job[None]], object], payload: None = None, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    def enqueue(  # type: ignore[misc]
        self: Callable[[None], object], payload: None = None, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    def enqueue(  # type: ignore[misc]
        self: Callable[[Job[T]], object], payload: T, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    def enqueue(self: Callable[[T], object], payload: T, **options: Unpack[EnqueueOptions]) -> UUID: ...
    def enqueue(self, payload: object = None, **options: Unpack[EnqueueOptions]) -> UUID:
        """`enqueue` with this handler's job type and queue; the options are the same."""
        return enqueue(self, payload, **options)

    @overload
    async def aenqueue(  # type: ignore[misc]
        self: Callable[[Job[None]], object], payload: None = None, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    async def aenqueue(  # type: ignore[misc]
        self: Callable[[None], object], payload: None = None, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    async def aenqueue(  # type: ignore[misc]
        self: Callable[[Job[T]], object], payload: T, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    async def aenqueue(self: Callable[[T], object], payload: T, **options: Unpack[EnqueueOptions]) -> UUID: ...
    async def aenqueue(self, payload: object = None, **options: Unpack[EnqueueOptions]) -> UUID:
        """`enqueue` for coroutines."""
        return await aenqueue(self, payload, **options)


@overload
def job_handler(function: Callable[Parameters, Result_co], /) -> JobHandler[Parameters, Result_co]: ...


@overload
def job_handler(
    job_type: str | None = None,
    /,
    *,
    queue: str | None = None,
    retry_strategy: RetryStrategyLike | RetryStrategyFunction = None,
    failed_job: FailedJobCallback | None = None,
    atomic: bool = False,
    advanced: bool = False,
    interruptible: bool | None = None,
    time_limit: float | timedelta | None = None,
    lease: float | timedelta | None = None,
) -> Callable[[Callable[Parameters, Result_co]], JobHandler[Parameters, Result_co]]: ...


def job_handler(
    function_or_type: Callable[..., Any] | str | None = None,
    /,
    *,
    queue: str | None = None,
    retry_strategy: RetryStrategyLike | RetryStrategyFunction = None,
    failed_job: FailedJobCallback | None = None,
    atomic: bool = False,
    advanced: bool = False,
    interruptible: bool | None = None,
    time_limit: float | timedelta | None = None,
    lease: float | timedelta | None = None,
) -> JobHandler | Callable[[Callable[..., Any]], JobHandler]:
    """Make a function the handler of a job type: its own name by default, `shop.jobs/send_receipt`.

    The function gets the payload, or with `advanced` the whole `Job`; it may be `async`. `queue`, `retry_strategy` and
    `failed_job` None leave it to the settings. `atomic` runs it inside the transaction that archives its job, so that
    what it writes to that database stays if the job is archived as a success, and only then. `interruptible` lets a
    stop of the worker raise `JobInterrupted` in it, at whatever it does then, or cancel it if it is `async`; None does
    so to `async` functions only. `time_limit` (a timedelta or seconds; None for the TIME_LIMIT setting, `math.inf` for
    none) raises `JobTimeout` in a function that runs for longer, in the same way, and counts as a failed attempt.
    `lease` (a timedelta or seconds) runs the job while no transaction is open and its row is not locked but put off for
    so long, again and again as long as it runs; a function whose lease is lost gets `LeaseLost`, unless it says
    `interruptible=False`.

    Raises InvalidHandler for what can't be a handler, and for a job type that another function has.
    """

    def decorate(function: Callable[..., Any]) -> JobHandler:
        job_type = _job_type(given_type, function)
        _check_signature(function, advanced)
        handler = JobHandler(
            job_type=job_type,
            function=function,
            takes="job" if advanced else "payload",
            queue=None if queue is None else _name("queue", queue),
            retry_strategy=retry_strategy if callable(retry_strategy) else as_strategy(retry_strategy),
            failed_job=failed_job,
            atomic=atomic,
            interruptible=interruptible,
            time_limit=_seconds("time_limit", time_limit),
            lease=lease_seconds(lease),
        )
        register(handler)
        return handler

    if callable(function_or_type):
        given_type = None
        return decorate(function_or_type)
    given_type = function_or_type
    return decorate


def _check_signature(function: Callable[..., Any], advanced: bool) -> None:
    try:
        check_takes(function, "its job" if advanced else "its payload")
    except ValueError as error:
        raise InvalidHandler(
            f"{function.__module__}.{function.__qualname__} {error}. A handler takes one argument, the payload, in "
            "which all it needs is; with advanced=True the whole job. Methods can't be handlers."
        ) from error


def _seconds(option: str, given: float | timedelta | None) -> float | None:
    try:
        return as_seconds(given)
    except ValueError as error:
        raise InvalidHandler(f"{option} is {error}. For example: {option}=timedelta(minutes=5).") from error


def lease_seconds(given: float | timedelta | None) -> float | None:
    """Seconds from what a handler or a task says; None for no lease. Raises InvalidHandler."""
    seconds = _seconds("lease", given)
    if seconds is not None and not SHORTEST <= seconds <= LONGEST_DELAY.total_seconds():
        raise InvalidHandler(
            f"lease is {given!r}, which is not between {SHORTEST:g} second and {LONGEST_DELAY.days} days. It is no "
            "limit, but the time after which a killed worker's job runs again. For example: lease=timedelta(minutes=5)."
        )
    return seconds


def _job_type(job_type: str | None, function: Callable[..., Any]) -> str:
    if isinstance(function, Handler) or not callable(function):
        raise InvalidHandler(f"@job_handler goes on a function, not on {function!r}.")
    if job_type is not None:
        return _name("job_type", job_type)
    name = getattr(unwrap(function), "__qualname__", "<unnamed>")
    if "<" in name:
        raise InvalidHandler(
            f"{name} of {function.__module__} is made inside another function, or is a lambda: other processes could "
            'not find it by that name. Give it one: @job_handler("shop/mail").'
        )
    return f"{function.__module__}/{name}"


# -- Workers ---------------------------------------------------------------------------------------------------------


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
