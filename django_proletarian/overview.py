"""What the queues are doing, in numbers that stay cheap: for proletarian_status and /metrics.

Everything goes by index and reads a bounded number of rows, also beside ten million archived jobs. What is not counted
to its end is told as an estimate.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, LiteralString

from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper

from django_proletarian import names, schema
from django_proletarian.job_states import RunningJob, leased_jobs, progressing_jobs
from django_proletarian.presence import LiveWorker, live_workers
from django_proletarian.queues_in_use import WITH_PRESENT
from django_proletarian.tables import Tables, quoted

MOST_COUNTED = 5_000  # rows of one queue, due or scheduled
MOST_RECENT = 20_000  # archived jobs, the newest
HOUR, DAY = 3600, 86400  # seconds


@dataclass(frozen=True, slots=True)
class Number:
    """A count, or an estimate of one."""

    value: int
    is_exact: bool = True

    def changed(self, by: int) -> Number:
        """The number with so many more, or less."""
        return Number(max(0, self.value + by), self.is_exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The jobs of one queue that are not finished."""

    queue: str
    due: Number  # those that run included
    scheduled: Number
    oldest_due: float | None  # seconds since it was due


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJobs:
    """What became of the jobs of one queue lately."""

    queue: str
    status: str
    last_hour: Number
    last_day: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    taken_at: datetime
    queues: tuple[QueueState, ...]
    finished: tuple[FinishedJobs, ...] | None  # None without the index that it takes
    archived: int | None  # the server's estimate; None before the first ANALYZE
    workers: tuple[LiveWorker, ...]
    progressing: tuple[RunningJob, ...]  # jobs whose handlers tell how far they have come


def overview(database: str, tables: Tables, queues: Iterable[str]) -> Overview:
    """How things stand in `database` now. `queues` are told of even if they are empty."""
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        prefer_indexes(cursor)
        cursor.execute("SELECT statement_timestamp()")
        [taken_at] = cursor.fetchone()
        return Overview(
            taken_at=taken_at,
            queues=tuple(queue_states(cursor, tables, queues)),
            finished=tuple(finished_jobs(cursor, tables)) if has_index(cursor, tables) else None,
            archived=archived_jobs(cursor, tables),
            workers=tuple(workers(cursor, tables)),
            progressing=tuple(progressing_jobs(cursor, tables)),
        )


def workers(cursor: CursorWrapper, tables: Tables) -> Iterator[LiveWorker]:
    """The workers that are connected now, with the jobs that they have leased among those that they run."""
    leased = Counter(job.worker_id for job in leased_jobs(cursor, tables))
    for worker in live_workers(cursor, tables):
        # Of several with one name, the first has them all.
        more = leased.pop(worker.worker_id, 0)
        yield worker if worker.running is None else replace(worker, running=worker.running + more)


def prefer_indexes(cursor: CursorWrapper) -> None:
    """Until the transaction ends: a table that grew since it was analyzed looks too small for its index."""
    cursor.execute("SET LOCAL enable_seqscan = off")


def has_index(cursor: CursorWrapper, tables: Tables) -> bool:
    """Whether the archive can be read by finished_at; without, it would be read whole."""
    cursor.execute(schema.finished_at_indexes(tables))
    return bool(cursor.rowcount)


# -- Jobs in the queue -----------------------------------------------------------------------------------------------

QUEUE_STATES: LiteralString = (
    WITH_PRESENT  # noqa: S608 # constants, all of it
    + """, asked AS (
    SELECT queue FROM present WHERE queue IS NOT NULL UNION SELECT unnest(%(queues)s::text[])
)
SELECT asked.queue,
       (SELECT count(*) FROM (
            SELECT FROM {job} AS job
             WHERE job.queue = asked.queue AND process_at <= statement_timestamp()
             LIMIT %(limit)s) AS due),
       (SELECT count(*) FROM (
            SELECT FROM {job} AS job
             WHERE job.queue = asked.queue AND process_at > statement_timestamp()
             LIMIT %(limit)s) AS scheduled),
       (SELECT extract(epoch FROM statement_timestamp() - process_at)::float8
          FROM {job} AS job
         WHERE job.queue = asked.queue AND process_at <= statement_timestamp()
         ORDER BY process_at
         LIMIT 1)
  FROM asked
"""
)
ESTIMATE: LiteralString = """
EXPLAIN (FORMAT JSON) SELECT FROM {job} WHERE queue = %s AND process_at {comparison} statement_timestamp()
"""


def queue_states(cursor: CursorWrapper, tables: Tables, queues: Iterable[str]) -> list[QueueState]:
    """Each queue that has jobs, and each of `queues`, in the order of their names."""
    stored = [names.to_stored(queue) for queue in queues]
    cursor.execute(QUEUE_STATES.format(job=quoted(tables.job)), {"queues": stored, "limit": MOST_COUNTED + 1})

    def number(queue: str, counted: int, comparison: LiteralString) -> Number:
        if counted <= MOST_COUNTED:
            return Number(counted)
        cursor.execute(ESTIMATE.format(job=quoted(tables.job), comparison=comparison), [queue])
        return Number(max(counted, _estimated_rows(cursor)), is_exact=False)

    states = []
    counted = cursor.fetchall()
    leased = Counter(job.queue for job in leased_jobs(cursor, tables))
    for queue, due, scheduled, oldest_due in counted:
        # Put off, as a scheduled one, while it runs.
        states.append(
            QueueState(
                queue=names.from_stored(queue),
                due=number(queue, due, "<=").changed(leased[queue]),
                scheduled=number(queue, scheduled, ">").changed(-leased[queue]),
                oldest_due=oldest_due,
            )
        )
    return sorted(states, key=lambda state: state.queue)


def _estimated_rows(cursor: CursorWrapper) -> int:
    [plan] = cursor.fetchone()
    parsed: list[dict[str, Any]] = json.loads(plan) if isinstance(plan, str) else plan
    return int(parsed[0]["Plan"]["Plan Rows"])


# -- Archived jobs ---------------------------------------------------------------------------------------------------

FINISHED: LiteralString = """
WITH recent AS MATERIALIZED (
    SELECT queue, status, finished_at FROM {archived_job}
     WHERE finished_at > statement_timestamp() - interval '1 day'
     ORDER BY finished_at DESC
     LIMIT %s
)
SELECT queue, status,
       count(*) FILTER (WHERE finished_at > statement_timestamp() - interval '1 hour'), count(*),
       (SELECT count(*) FROM recent),
       (SELECT extract(epoch FROM statement_timestamp() - min(finished_at))::float8 FROM recent)
  FROM recent
 GROUP BY queue, status
 ORDER BY queue, status
"""


def finished_jobs(cursor: CursorWrapper, tables: Tables) -> list[FinishedJobs]:
    """What finished in the last hour and day. Where that is too much to count, the newest stand for the rest."""
    cursor.execute(FINISHED.format(archived_job=quoted(tables.archived_job)), [MOST_RECENT])
    return [
        FinishedJobs(
            queue=names.from_stored(queue),
            status=names.from_stored(status),
            last_hour=_extrapolated(hour, HOUR, counted, seconds),
            last_day=_extrapolated(day, DAY, counted, seconds),
        )
        for queue, status, hour, day, counted, seconds in cursor.fetchall()
    ]


def _extrapolated(count: int, window: float, counted: int, seconds: float) -> Number:
    """`count` of a window of which only the last `seconds` were read, if all that may be `counted` were."""
    if counted < MOST_RECENT or seconds >= window:
        return Number(count)
    return Number(round(count * window / max(seconds, 1e-3)), is_exact=False)


def archived_jobs(cursor: CursorWrapper, tables: Tables) -> int | None:
    """How many rows the archive has, as the server estimates it."""
    cursor.execute("SELECT reltuples::float8 FROM pg_class WHERE oid = %s::regclass", [quoted(tables.archived_job)])
    [rows] = cursor.fetchone()
    return None if rows < 0 else int(rows)
