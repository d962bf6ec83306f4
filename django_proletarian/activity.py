"""What happened lately, for the admin's overview page: what finished when, which types fail, what the workers run.

As in `overview`, everything goes by index and reads a bounded number of rows. A window of time is cut into slots, and
of each slot no more than its first rows are read: where there were more, they stand for the rest, as an estimate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from django_proletarian import names
from django_proletarian.indexes import FAILURES
from django_proletarian.job_states import may_read_workers
from django_proletarian.models import Worker
from django_proletarian.overview import Number
from django_proletarian.progress import Progress
from django_proletarian.tables import Tables, for_tables
from django_proletarian.worker_row import DEAD_AFTER

MOST_IN_SLOT = 400  # archived jobs that are read of each slot
MOST_TYPES = 10  # that are told of, those with the most failures
MOST_WORKERS = 200
FAILURE = ":failure"  # as it is stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time that ends now, in slots of equal length."""

    seconds: int
    slots: int

    @property
    def slot_seconds(self) -> float:
        return self.seconds / self.slots


HOUR = Window(seconds=3600, slots=60)
DAY = Window(seconds=86400, slots=48)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What finished of one queue in one slot."""

    began: datetime
    ended: datetime
    succeeded: Number
    failed: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What finished of one queue in a window."""

    window: Window
    slots: tuple[Slot, ...]  # the oldest first

    @property
    def succeeded(self) -> Number:
        return total(slot.succeeded for slot in self.slots)

    @property
    def failed(self) -> Number:
        return total(slot.failed for slot in self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAtHeartbeat:
    """A job that a worker ran at its last heartbeat."""

    job_id: UUID
    job_type: str
    queue: str
    attempt: int
    seconds: float  # since it began, until now
    progress: Progress | None  # None if its handler tells of none


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """A worker process, as it was at its last heartbeat."""

    worker_id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    processes: int  # that work together, this one included
    threads: int  # of this process
    version: str
    started_at: datetime
    silent: float  # seconds since the heartbeat
    running: tuple[JobAtHeartbeat, ...]
    succeeded: int
    failed: int

    @property
    def is_alive(self) -> bool:
        return self.silent < DEAD_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    hour: Mapping[str, Throughput]  # by queue; without those of which nothing finished
    day: Mapping[str, Throughput]
    failing: tuple[tuple[str, Number], ...]  # job types and their failures of the day, the most first


def total(numbers: Iterable[Number]) -> Number:
    """Their sum, an estimate if one of them is."""
    terms = list(numbers)
    return Number(sum(term.value for term in terms), is_exact=all(term.is_exact for term in terms))


# -- Archived jobs ---------------------------------------------------------------------------------------------------

# Also where the statistics know little of the newest rows: a bitmap would be made of all of a slot.
BY_INDEX_ONLY = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"
# Those of one slot in the order of the index, so that the scan ends at the limit. `seconds` is how much of its slot the
# sample covers.
SAMPLES: LiteralString = """
WITH slot AS (
    SELECT number,
           %(now)s::timestamptz - (%(slots)s - number) * %(width)s * interval '1 second' AS began,
           %(now)s::timestamptz - (%(slots)s - number - 1) * %(width)s * interval '1 second' AS ended
      FROM generate_series(0, %(slots)s - 1) AS number
)
SELECT slot.number, queue, job_type, status, count(*), min(counted),
       min(extract(epoch FROM newest - slot.began))::float8 AS seconds
  FROM slot CROSS JOIN LATERAL (
       SELECT queue, job_type, status, count(*) OVER () AS counted, max(finished_at) OVER () AS newest
         FROM (SELECT queue, job_type, status, finished_at
                 FROM {{archived_job}}
                WHERE finished_at > slot.began AND finished_at <= slot.ended {condition}
                ORDER BY finished_at
                LIMIT %(limit)s) AS first
       ) AS sample
 GROUP BY slot.number, queue, job_type, status
"""
SAMPLES_OF_ALL: LiteralString = SAMPLES.format(condition="")
SAMPLES_OF_FAILURES: LiteralString = SAMPLES.format(condition="AND status = ':failure'")


@dataclass(frozen=True, slots=True)
class Group:
    """The jobs of one slot, queue, type and status."""

    slot: int
    queue: str
    job_type: str
    failed: bool
    jobs: float
    is_exact: bool


def activity(cursor: CursorWrapper, tables: Tables, now: datetime) -> Activity:
    """What finished until `now`. The archive must have its index by finished_at.

    Failures have an index of their own where a role could build it; few as they may be, they are then counted.
    """
    cursor.execute(BY_INDEX_ONLY)
    cursor.execute(FAILURES.is_there(tables))
    counts_failures = bool(cursor.rowcount)

    def groups(window: Window) -> list[Group]:
        if not counts_failures:
            return list(samples(cursor, SAMPLES_OF_ALL, tables, now, window))
        others = [group for group in samples(cursor, SAMPLES_OF_ALL, tables, now, window) if not group.failed]
        return [*others, *samples(cursor, SAMPLES_OF_FAILURES, tables, now, window)]

    day = groups(DAY)
    return Activity(
        hour=throughput_by_queue(groups(HOUR), HOUR, now), day=throughput_by_queue(day, DAY, now), failing=failing(day)
    )


def samples(
    cursor: CursorWrapper, statement: LiteralString, tables: Tables, now: datetime, window: Window
) -> Iterator[Group]:
    values: dict[str, Any] = {"now": now, "slots": window.slots, "width": window.slot_seconds, "limit": MOST_IN_SLOT}
    cursor.execute(for_tables(statement, tables), values)
    for number, queue, job_type, status, jobs, counted, seconds in cursor.fetchall():
        is_exact = counted < MOST_IN_SLOT
        # Of a slot that was read to the limit, its first seconds stand for all.
        factor = 1.0 if is_exact else max(1.0, window.slot_seconds / max(seconds, 1e-3))
        yield Group(
            slot=number,
            queue=names.from_stored(queue),
            job_type=names.from_stored(job_type),
            failed=status == FAILURE,
            jobs=jobs * factor,
            is_exact=is_exact,
        )


def throughput_by_queue(groups: Iterable[Group], window: Window, now: datetime) -> dict[str, Throughput]:
    counted: dict[str, dict[tuple[int, bool], list[Group]]] = defaultdict(lambda: defaultdict(list))
    for group in groups:
        counted[group.queue][group.slot, group.failed].append(group)
    width = timedelta(seconds=window.slot_seconds)
    begin = now - width * window.slots
    return {
        queue: Throughput(
            window=window,
            slots=tuple(
                Slot(
                    began=begin + width * number,
                    ended=begin + width * (number + 1),
                    succeeded=jobs_in(of_queue[number, False]),
                    failed=jobs_in(of_queue[number, True]),
                )
                for number in range(window.slots)
            ),
        )
        for queue, of_queue in counted.items()
    }


def jobs_in(groups: Iterable[Group]) -> Number:
    """How many jobs are in `groups`."""
    return total(Number(round(group.jobs), group.is_exact) for group in groups)


def failing(groups: Iterable[Group]) -> tuple[tuple[str, Number], ...]:
    """The types with the most failures."""
    of_type: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        if group.failed:
            of_type[group.job_type].append(group)
    numbers = [(job_type, jobs_in(failures)) for job_type, failures in of_type.items()]
    return tuple(sorted(numbers, key=lambda told: (-told[1].value, told[0]))[:MOST_TYPES])


# -- Workers ---------------------------------------------------------------------------------------------------------

SILENT: LiteralString = """
SELECT process_id, extract(epoch FROM statement_timestamp() - heartbeat_at)::float8
  FROM {worker}
 ORDER BY heartbeat_at DESC
 LIMIT %s
"""


def workers(cursor: CursorWrapper, tables: Tables) -> tuple[WorkerState, ...] | None:
    """The worker processes that left a row, those that are alive first. None if there is no such table to be read."""
    if not may_read_workers(cursor, tables):
        return None
    cursor.execute(for_tables(SILENT, tables), [MOST_WORKERS])
    silent: dict[UUID, float] = dict(cursor.fetchall())
    rows = Worker.objects.using(cursor.db.alias).filter(process_id__in=silent)
    states = [worker_state(row, silent[row.process_id]) for row in rows]
    return tuple(sorted(states, key=lambda state: (not state.is_alive, state.worker_id, state.host, state.pid)))


def worker_state(row: Worker, silent: float) -> WorkerState:
    return WorkerState(
        worker_id=row.worker_id,
        host=row.host,
        pid=row.pid,
        queues=tuple(map(str, row.queues)),
        processes=row.processes,
        threads=row.threads,
        version=row.version,
        started_at=row.started_at,
        silent=silent,
        running=tuple(running_job(job, silent) for job in row.running),
        succeeded=row.succeeded,
        failed=row.failed,
    )


def running_job(job: Mapping[str, Any], silent: float) -> JobAtHeartbeat:
    return JobAtHeartbeat(
        job_id=UUID(job["job_id"]),
        job_type=job["job_type"],
        queue=job["queue"],
        attempt=job["attempt"],
        seconds=job["seconds"] + max(0.0, silent),
        progress=Progress.from_json(job.get("progress")),
    )


def running_by_queue(states: Iterable[WorkerState]) -> Counter[str]:
    """How many jobs run of each queue, as the living workers said last; queues as `names.shown` writes them."""
    return Counter(job.queue for state in states if state.is_alive for job in state.running)
