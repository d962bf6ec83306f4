"""Look at what a test has enqueued, and say what was there when it is not what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models.expressions import RawSQL

from django_proletarian import conf, names
from django_proletarian.errors import PayloadDecodeError
from django_proletarian.handlers import Handler
from django_proletarian.models import ArchivedJob, Job, StoredJob
from django_proletarian.transit import Keyword


class _Anything:
    def __repr__(self) -> str:
        return "anything"


ANYTHING: Any = _Anything()
MOST_SHOWN = 20  # jobs in a message
AS_ENQUEUED = ("enqueued_at", RawSQL("ctid", []))  # of one time, as they stand in the table


def enqueued_jobs(
    job_type: str | Handler | None = None, *, queue: str | None = None, using: str | None = None
) -> list[Job]:
    """The jobs that are in the queue, in the order in which they were enqueued; retries are among them.

    `job_type` and `queue` None mean all of them, `using` None the routers' database.
    """
    jobs = Job.objects.using(using).order_by(*AS_ENQUEUED)
    if job_type is not None:
        jobs = jobs.filter(job_type=_name(job_type))
    if queue is not None:
        jobs = jobs.filter(queue=queue)
    return list(jobs)


def assert_enqueued(
    job_type: str | Handler | None = None,
    *,
    payload: object = ANYTHING,
    payload_contains: object = ANYTHING,
    queue: str | None = None,
    process_at: datetime | None = None,
    within: timedelta = timedelta(0),
    count: int | None = None,
    using: str | None = None,
) -> Job:
    """Fail unless such a job is in the queue, and say what is; return the first that is.

    `payload` is the whole of it; of `payload_contains` a dict's keys must be in the payload with values that contain
    its values, a list must be equal. Both are compared as a row would give them back. `process_at` may be missed by
    `within`. With `count`, 1 or more, there must be just so many such jobs. What is left out may be anything.
    """
    wanted = _Wanted.of(job_type, payload, payload_contains, queue=queue, process_at=process_at, within=within)
    there = enqueued_jobs(using=using)
    found = wanted.among(there)
    if not found:
        raise AssertionError(f"No job {wanted}is in the queue. {_told(there, wanted.difference)}")
    if count is not None and len(found) != count:
        raise AssertionError(
            f"{len(found)} {_jobs(found)} {wanted}in the queue, not {count}. {_told(there, wanted.difference)}"
        )
    return found[0]


def assert_not_enqueued(
    job_type: str | Handler | None = None,
    *,
    payload: object = ANYTHING,
    payload_contains: object = ANYTHING,
    queue: str | None = None,
    process_at: datetime | None = None,
    within: timedelta = timedelta(0),
    using: str | None = None,
) -> None:
    """Fail if such a job is in the queue, and say which; the arguments are those of `assert_enqueued`."""
    wanted = _Wanted.of(job_type, payload, payload_contains, queue=queue, process_at=process_at, within=within)
    found = wanted.among(enqueued_jobs(using=using))
    if found:
        raise AssertionError(f"{len(found)} {_jobs(found)} {wanted}in the queue. {_told(found, lambda job: None)}")


@contextmanager
def capture_jobs(*, using: str | None = None) -> Iterator[list[StoredJob]]:
    """A list that has, at the end of the block, the jobs that were enqueued in it, in order.

    Each is a `Job`, or an `ArchivedJob` if it has run meanwhile; those whose transaction was rolled back are not.
    """
    tables = (Job, ArchivedJob)
    before = {job_id for table in tables for job_id in table.objects.using(using).values_list("job_id", flat=True)}
    captured: list[StoredJob] = []
    yield captured
    for table in tables:
        rows = table.objects.using(using).order_by(*AS_ENQUEUED)
        captured += [job for job in rows if job.job_id not in before]
    captured.sort(key=lambda job: job.enqueued_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a job should be like."""

    job_type: str | None
    payload: object
    contains: object
    queue: str | None
    process_at: datetime | None
    within: timedelta

    @classmethod
    def of(cls, job_type: str | Handler | None, payload: object, contains: object, **rest: Any) -> _Wanted:
        return cls(
            job_type=None if job_type is None else _name(job_type),
            payload=payload if payload is ANYTHING else _as_read(payload),
            contains=contains if contains is ANYTHING else _as_read(contains),
            **rest,
        )

    def __str__(self) -> str:
        conditions = [
            None if self.job_type is None else f"of type {names.shown(self.job_type)}",
            None if self.payload is ANYTHING else f"with payload {_shown(self.payload)}",
            None if self.contains is ANYTHING else f"with a payload that contains {_shown(self.contains)}",
            None if self.queue is None else f"on queue {names.shown(self.queue)}",
            None if self.process_at is None else f"due {self.process_at.isoformat()}{self._within}",
        ]
        return "".join(f"{condition} " for condition in conditions if condition)

    @property
    def _within(self) -> str:
        return f" within {self.within}" if self.within else ""

    def among(self, jobs: Iterable[Job]) -> list[Job]:
        """Those that are as wanted."""
        return [job for job in jobs if self.difference(job) is None]

    def difference(self, job: Job) -> str | None:
        """What is not as wanted; None if all is."""
        if self.job_type is not None and not _same(job.job_type, self.job_type):
            return f"type {names.shown(job.job_type)}"
        if self.queue is not None and not _same(job.queue, self.queue):
            return f"queue {names.shown(job.queue)}"
        if self.process_at is not None and abs(job.process_at - self.process_at) > self.within:
            return f"due {job.process_at.isoformat()}"
        return self._difference_in_payload(job)

    def _difference_in_payload(self, job: Job) -> str | None:
        if self.payload is ANYTHING and self.contains is ANYTHING:
            return None
        try:
            payload = job.payload
        except PayloadDecodeError as error:
            return str(error)
        if self.payload is not ANYTHING and payload != self.payload:
            return "another payload"
        return None if self.contains is ANYTHING else _missing(payload, self.contains, "payload")


def _missing(found: object, wanted: object, place: str) -> str | None:
    """Where `found` does not contain `wanted`; None if it does."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            here = f"{place}[{_shown(key)}]"
            if key not in found:
                return f"no {here}"
            if missing := _missing(found[key], value, here):
                return missing
        return None
    return None if found == wanted else f"{place} is {_shown(found, 100)}"


def _as_read(payload: object) -> object:
    serializer = conf.serializer()
    return serializer.decode(serializer.encode(payload))


def _name(job_type: str | Handler) -> str:
    return job_type.job_type if isinstance(job_type, Handler) else job_type


def _same(name: str, wanted: str) -> bool:
    return names.to_stored(name) == names.to_stored(wanted)


def _jobs(jobs: Sequence[StoredJob]) -> str:
    return "job" if len(jobs) == 1 else "jobs"


def _told(jobs: Sequence[Job], difference: Callable[[Job], str | None]) -> str:
    """A list of jobs for a message, each with how it differs."""
    if not jobs:
        return "There is none at all."
    lines = []
    for job in jobs[:MOST_SHOWN]:
        differs = difference(job)
        where = f"  {names.shown(job.job_type)} on {names.shown(job.queue)}, due {job.process_at.isoformat()}"
        lines.append(f"{where}, payload {_shown_payload(job)}" + (f"  <- {differs}" if differs else ""))
    if len(jobs) > MOST_SHOWN:
        lines.append(f"  … and {len(jobs) - MOST_SHOWN} more")
    return "\n".join([f"{len(jobs)} {_jobs(jobs)}:", *lines])


def _shown_payload(job: Job) -> str:
    try:
        return _shown(job.payload)
    except PayloadDecodeError:
        return _cut(job.payload_text)


def _shown(value: object, most: int = 500) -> str:
    return _cut(repr(_with_plain_keys(value)), most)


def _cut(text: str, most: int = 500) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _with_plain_keys(value: object) -> object:
    """A value without the names of classes that say nothing here: keys are keywords, if not otherwise told."""
    if isinstance(value, Mapping):
        return {_with_plain_keys(key): _with_plain_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_plain_keys(item) for item in value]
    return str(value) if type(value) is Keyword else value
