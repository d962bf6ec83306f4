"""Which jobs run now, and what state a job is in, for whoever looks from outside: the admin, status, task results.

Looking locks nothing. A lock, however short, would make a worker that claims at that moment pass the row over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import LiteralString
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from django_proletarian.progress import Progress
from django_proletarian.tables import Tables, for_tables
from django_proletarian.worker_row import DEAD_AFTER


class JobState(StrEnum):
    """What a job in the queue is doing."""

    RUNNING = "running"
    DUE = "due"
    SCHEDULED = "scheduled"  # for its first run
    RETRYING = "retrying"  # it failed, and waits for its next run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """A job that a worker has taken."""

    job_id: UUID
    # None, as all the next, if no worker's row tells: a Clojure worker's job, or one begun since the last heartbeat.
    worker_id: str | None = None
    process_id: UUID | None = None
    began_at: datetime | None = None  # by the database's clock
    job_type: str | None = None  # as names.shown writes it
    progress: Progress | None = None  # None too if its handler tells of none


def state_of(*, attempts: int, process_at: datetime, now: datetime, is_running: bool) -> JobState:
    """The state of a job that has these values in its row. `now` is the database's clock."""
    if is_running:
        return JobState.RUNNING
    if process_at <= now:
        return JobState.DUE
    return JobState.RETRYING if attempts else JobState.SCHEDULED


# A claim leaves its transaction's id in the row, as xmax, and a transaction has a lock on its own id until it ends.
# CASE keeps the server's table of locks from being read where no row was ever locked.
LOCKED: LiteralString = """
SELECT job_id, attempts,
       CASE WHEN job.xmax <> '0'::xid
            THEN job.xmax IN (SELECT transactionid FROM pg_locks
                               WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted)
            ELSE FALSE
       END
  FROM {job} AS job
 WHERE job_id = ANY(%s)
"""


def running_jobs(cursor: CursorWrapper, tables: Tables, job_ids: Iterable[UUID]) -> dict[UUID, RunningJob]:
    """Those of `job_ids` that are in the queue and that a worker has taken, by id.

    A worker has taken a job if its row is locked, or if a living worker names it among those that it runs. A batch is
    taken as a whole. Whoever else has locked a row, such as a person who is changing it in another transaction, passes
    for a worker until the lock ends.
    """
    asked = list(job_ids)
    if not asked:
        return {}
    cursor.execute(for_tables(LOCKED, tables), [asked])
    in_queue = {job_id: (attempts, is_locked) for job_id, attempts, is_locked in cursor.fetchall()}
    told = told_by_workers(cursor, tables)
    running = {}
    for job_id, (attempts, is_locked) in in_queue.items():
        by_worker = told.get(job_id)
        if is_locked or (by_worker is not None and by_worker.is_of(attempts)):
            running[job_id] = RunningJob(job_id=job_id) if by_worker is None else by_worker.job
    return running


# -- Workers' rows ---------------------------------------------------------------------------------------------------

MAY_READ_WORKERS: LiteralString = "SELECT has_table_privilege(to_regclass('{worker}'), 'SELECT')"
TOLD_BY_WORKERS: LiteralString = """
SELECT (job->>'job_id')::uuid, worker_id, process_id, heartbeat_at - (job->>'seconds')::float8 * interval '1 second',
       job->>'job_type', job->>'progress', (job->>'attempt')::int, COALESCE((job->>'leased')::boolean, FALSE)
  FROM {worker}, jsonb_array_elements(running) AS job
 WHERE heartbeat_at > statement_timestamp() - %s * interval '1 second'
"""


@dataclass(frozen=True, slots=True)
class _Told:
    job: RunningJob
    attempt: int
    is_leased: bool

    def is_of(self, attempts: int) -> bool:
        """Whether a row with so many attempts is still at the one that the worker was at when it wrote.

        A lease counts its attempt when it begins, any other job when it ends.
        """
        return self.attempt == attempts + (0 if self.is_leased else 1)


def may_read_workers(cursor: CursorWrapper, tables: Tables) -> bool:
    """Whether there is a table of workers that this role may read."""
    cursor.execute(for_tables(MAY_READ_WORKERS, tables))
    return bool(cursor.fetchone() == (True,))


def told_by_workers(cursor: CursorWrapper, tables: Tables) -> dict[UUID, _Told]:
    """The jobs that living workers' rows name, by id; none where there is no table of workers to be read."""
    if not may_read_workers(cursor, tables):
        return {}
    cursor.execute(for_tables(TOLD_BY_WORKERS, tables), [DEAD_AFTER])
    return {
        job_id: _Told(
            RunningJob(
                job_id=job_id,
                worker_id=worker_id,
                process_id=process_id,
                began_at=began_at,
                job_type=job_type,
                progress=Progress.from_json(None if progress is None else json.loads(progress)),
            ),
            attempt,
            is_leased,
        )
        for job_id, worker_id, process_id, began_at, job_type, progress, attempt, is_leased in cursor.fetchall()
    }


def progressing_jobs(cursor: CursorWrapper, tables: Tables) -> list[RunningJob]:
    """The jobs whose handlers tell how far they have come, as living workers said last; the longest first."""
    told = [each.job for each in told_by_workers(cursor, tables).values() if each.job.progress is not None]
    return sorted(told, key=lambda job: (job.began_at is None, job.began_at, job.job_id))


# -- Leased ones -----------------------------------------------------------------------------------------------------

# Their rows look as if they were scheduled.
STILL_LEASED: LiteralString = """
SELECT job_id, attempts, queue FROM {job} WHERE job_id = ANY(%s) AND process_at > statement_timestamp()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedJob:
    """A job that runs while its row is not due."""

    queue: str  # as stored
    worker_id: str | None


def leased_jobs(cursor: CursorWrapper, tables: Tables) -> list[LeasedJob]:
    """The jobs that living workers have leased."""
    told = {job_id: each for job_id, each in told_by_workers(cursor, tables).items() if each.is_leased}
    if not told:
        return []
    cursor.execute(for_tables(STILL_LEASED, tables), [list(told)])
    return [
        LeasedJob(queue=queue, worker_id=told[job_id].job.worker_id)
        for job_id, attempts, queue in cursor.fetchall()
        if told[job_id].is_of(attempts)
    ]


# -- All of them -----------------------------------------------------------------------------------------------------

# Workers take the oldest due jobs of a queue, so that is where locked rows are.
OLDEST_DUE: LiteralString = """
SELECT due.job_id
  FROM unnest(%s::text[]) AS asked (queue)
 CROSS JOIN LATERAL (
    SELECT job_id FROM {job} AS job
     WHERE job.queue = asked.queue AND process_at <= statement_timestamp()
     ORDER BY process_at
     LIMIT %s
 ) AS due
"""
MOST_LOOKED_AT = 1000  # of each queue


def all_running_jobs(cursor: CursorWrapper, tables: Tables, stored_queues: Sequence[str]) -> dict[UUID, RunningJob]:
    """The jobs that run now, by id: those that workers' rows name, and of the oldest due jobs those that are locked.

    `stored_queues`, as rows have them, are where to look for locks.
    """
    cursor.execute(for_tables(OLDEST_DUE, tables), [list(stored_queues), MOST_LOOKED_AT])
    oldest = [job_id for (job_id,) in cursor.fetchall()]
    return running_jobs(cursor, tables, {*oldest, *told_by_workers(cursor, tables)})
