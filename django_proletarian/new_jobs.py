"""From what a caller asks for to the row that it will be; what no row can hold is refused here, before any SQL.

Called by `enqueue` and its kin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypedDict
from uuid import UUID

from django.conf import settings as django_settings
from django.utils import timezone

from django_proletarian import conf, inserts, names, priorities
from django_proletarian.errors import EnqueueError
from django_proletarian.handlers import Handler, handler_of
from django_proletarian.retry import LONGEST_DELAY
from django_proletarian.serializers import Serializer

OnConflict = Literal["error", "ignore"]


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


def rows_of(jobs: Iterable[NewJob | tuple[str | Handler, object]]) -> tuple[list[inserts.JobRow], bool]:
    """Rows to be, in the same order, and whether any has an id of the caller's.

    Raises EnqueueError for what no row can hold.
    """
    stored_names: dict[tuple[object, ...], tuple[str, str]] = {}  # many jobs, few names: each is checked once
    new_id, serializer = makers()
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
            stored = stored_names[asked] = queue_and_job_type(job.job_type, job.queue, job.priority)
        rows.append(row_of(*stored, job, new_id, serializer))
    return rows, own_ids


def _new_job(given: object) -> NewJob:
    if isinstance(given, tuple) and len(given) <= len(NewJob._fields):
        return NewJob(*given)
    raise EnqueueError(
        f"enqueue_many takes NewJob(...)s or (job_type, payload) tuples, and was given a {type(given).__name__}. "
        "One job is enqueued with enqueue."
    )


def makers() -> tuple[Callable[[], UUID], Serializer]:
    """What makes new ids and encodes payloads."""
    return conf.resolved("JOB_ID_STRATEGY"), conf.serializer()


def row_of(
    queue: str, job_type: str, job: NewJob, new_id: Callable[[], UUID], serializer: Serializer
) -> inserts.JobRow:
    return inserts.JobRow(
        _checked_id(new_id() if job.job_id is None else job.job_id),
        queue,
        job_type,
        _encoded(serializer, job.payload),
        None if job.process_at is None else _process_at(job.process_at),
        None if job.process_in is None else _process_in(job.process_in),
    )


def queue_and_job_type(given: str | Handler, queue: str | None, priority: int) -> tuple[str, str]:
    """Queue and job type as a row has them."""
    job_type = given.job_type if isinstance(given, Handler) else checked_name("job_type", given)
    handler = given if isinstance(given, Handler) else handler_of(job_type)
    if queue is None:
        queue = handler.queue if handler is not None else None
    queue = conf.settings().queue if queue is None else checked_name("queue", queue)
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


def writes_json() -> bool:
    return bool(getattr(conf.serializer(), "is_json", False))


def checked_name(what: str, name: object) -> str:
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
