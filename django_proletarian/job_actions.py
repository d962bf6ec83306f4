"""What a person may do to jobs: run them now or later, move them, cancel them, and run archived ones again.

Called by the admin, with many jobs at a time. Nothing here waits for a worker: a job that runs is left alone, and so is
one that a worker takes at that very moment, since its row is locked. What was not done, and why, is told job by job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, LiteralString, NamedTuple, Protocol
from uuid import UUID

from django.db import DatabaseError, connections, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.errors import InsufficientPrivilege

from django_proletarian import conf, inserts, names, priorities
from django_proletarian.ids import uuid7
from django_proletarian.job_states import running_jobs
from django_proletarian.tables import Tables, for_tables

BATCH = 500  # jobs of one transaction
WAIT_AT_MOST = "SET LOCAL lock_timeout = '2s'"  # for a job of the same id that is just being archived


class ActedOn(NamedTuple):
    """A job to which it was done; names as they are stored."""

    job_id: UUID
    job_type: str
    queue: str  # where it is now
    copy_id: UUID | None = None  # of the job that was made, where that is another


class Left(StrEnum):
    """Why a job was left as it was."""

    RUNNING = "running"
    GONE = "gone"  # it is not where it was: it finished, or somebody was quicker
    QUEUED = "queued"  # a job of this id is in the queue already
    FAILED = "failed"  # the database refused; `Report.errors` has what it said


@dataclass(slots=True, kw_only=True)
class Report:
    """What became of each job that was asked for."""

    done: list[ActedOn] = field(default_factory=list)
    left: dict[UUID, Left] = field(default_factory=dict)
    errors: dict[UUID, str] = field(default_factory=dict)

    def add(self, done: list[ActedOn], left: dict[UUID, Left]) -> None:
        self.done.extend(done)
        self.left.update(left)


class Action(Protocol):
    """Something to do to jobs."""

    def left_alone(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> Mapping[UUID, Left]:
        """Those of `job_ids` to which it can't be done now."""

    def apply(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> list[ActedOn]:
        """Do it to those of `job_ids` that are there and not locked."""


def perform(
    database: str, tables: Tables, action: Action, job_ids: Sequence[UUID], then: Callable[[list[ActedOn]], None]
) -> Report:
    """Do `action` to each of `job_ids`, a batch a transaction, or a savepoint where the caller has one open.

    `then` is called in that transaction, with those to which it was done. If the database refuses a batch, its jobs are
    tried one by one, so that one bad row does not undo the others. Raises what a role without the rights is told.
    """
    report = Report()
    for start in range(0, len(job_ids), BATCH):
        batch = job_ids[start : start + BATCH]
        try:
            report.add(*_perform(database, tables, action, batch, then))
        except DatabaseError as error:
            _raise_if_hopeless(database, error)
            for job_id in batch:
                try:
                    report.add(*_perform(database, tables, action, [job_id], then))
                except DatabaseError as refusal:
                    _raise_if_hopeless(database, refusal)
                    report.left[job_id] = Left.FAILED
                    report.errors[job_id] = str(refusal).partition("\n")[0]
    return report


def _perform(
    database: str,
    tables: Tables,
    action: Action,
    job_ids: Sequence[UUID],
    then: Callable[[list[ActedOn]], None],
) -> tuple[list[ActedOn], dict[UUID, Left]]:
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        cursor.execute(WAIT_AT_MOST)
        left = dict(action.left_alone(cursor, tables, job_ids))
        done = action.apply(cursor, tables, [job_id for job_id in job_ids if job_id not in left])
        accounted = {*left, *(job.job_id for job in done)}
        missing = [job_id for job_id in job_ids if job_id not in accounted]
        # Locked since it was looked at, or not there.
        left.update(dict.fromkeys(missing, Left.GONE))
        left.update(action.left_alone(cursor, tables, missing))
        then(done)
    return done, left


def _raise_if_hopeless(database: str, error: DatabaseError) -> None:
    """All jobs would meet the same end."""
    if isinstance(error.__cause__, InsufficientPrivilege) or not connections[database].is_usable():
        raise error


# -- Jobs in the queue -----------------------------------------------------------------------------------------------

# Rows that workers have locked are passed over: nobody waits for anybody. In the order of their ids, as all do.
CHOSEN: LiteralString = """
WITH chosen AS MATERIALIZED (
    SELECT job_id FROM {job} WHERE job_id = ANY(%(job_ids)s) ORDER BY job_id FOR UPDATE SKIP LOCKED
)"""


class _OnQueuedJobs:
    def left_alone(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> Mapping[UUID, Left]:
        return dict.fromkeys(running_jobs(cursor, tables, job_ids), Left.RUNNING)


# A job that is due already keeps its place among the others.
RUN_NOW: LiteralString = f"""{CHOSEN}
UPDATE {{job}} AS job
   SET process_at = LEAST(process_at, statement_timestamp())
  FROM chosen
 WHERE job.job_id = chosen.job_id
RETURNING job.job_id, job_type, queue
"""  # noqa: S608 # of our own texts


@dataclass(frozen=True, slots=True)
class RunNow(_OnQueuedJobs):
    """Make jobs due, whatever they wait for."""

    def apply(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> list[ActedOn]:
        cursor.execute(for_tables(RUN_NOW, tables), {"job_ids": list(job_ids)})
        return _woken(cursor, tables)


RESCHEDULE: LiteralString = f"""{CHOSEN}
UPDATE {{job}} AS job
   SET process_at = GREATEST(%(process_at)s, statement_timestamp())
  FROM chosen
 WHERE job.job_id = chosen.job_id
RETURNING job.job_id, job_type, queue
"""  # noqa: S608 # of our own texts


@dataclass(frozen=True, slots=True)
class Reschedule(_OnQueuedJobs):
    """Make jobs due at a date; a past one is now."""

    process_at: datetime

    def apply(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> list[ActedOn]:
        cursor.execute(for_tables(RESCHEDULE, tables), {"job_ids": list(job_ids), "process_at": self.process_at})
        return _woken(cursor, tables)


QUEUES_OF: LiteralString = "SELECT DISTINCT queue FROM {job} WHERE job_id = ANY(%s)"
MOVE: LiteralString = f"""{CHOSEN}
UPDATE {{job}} AS job
   SET queue = way.there
  FROM chosen, unnest(%(here)s::text[], %(there)s::text[]) AS way (here, there)
 WHERE job.job_id = chosen.job_id AND job.queue = way.here
RETURNING job.job_id, job_type, queue
"""  # noqa: S608 # of our own texts


@dataclass(frozen=True, slots=True)
class Move(_OnQueuedJobs):
    """Put jobs into another queue. Raises ValueError if the queue can't have that priority."""

    queue: str
    priority: int | None = None  # None for the one that each job has

    def apply(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> list[ActedOn]:
        cursor.execute(for_tables(QUEUES_OF, tables), [list(job_ids)])
        here = [queue for (queue,) in cursor.fetchall()]
        there = [names.to_stored(self.destination(names.from_stored(queue))) for queue in here]
        cursor.execute(for_tables(MOVE, tables), {"job_ids": list(job_ids), "here": here, "there": there})
        return _woken(cursor, tables)

    def destination(self, queue: str) -> str:
        """Where the jobs of a queue go, which may be one priority of another."""
        _queue, priority = conf.queue_and_priority(queue)
        return priorities.level(self.queue, priority if self.priority is None else self.priority)


def _woken(cursor: CursorWrapper, tables: Tables) -> list[ActedOn]:
    """The rows that came back, and their queues' sleeping workers awake at the commit."""
    done = [ActedOn(*row) for row in cursor.fetchall()]
    inserts.wake_sleepers(cursor, tables, {job.queue for job in done})
    return done


# As a worker archives it, but for the attempt: it never began, so it isn't counted.
CANCEL: LiteralString = f"""{CHOSEN},
removed AS (
    DELETE FROM {{job}} AS job USING chosen WHERE job.job_id = chosen.job_id
 RETURNING job.*
), archived AS (
    INSERT INTO {{archived_job}} AS archived
           (job_id, queue, job_type, payload, attempts, enqueued_at, process_at, status, finished_at)
    SELECT job_id, queue, job_type, payload, attempts, enqueued_at, process_at, ':failure', statement_timestamp()
      FROM removed
        ON CONFLICT (job_id) DO {{{{on_conflict}}}}
){{{{recorded}}}}
SELECT job_id, job_type, queue FROM removed
"""  # noqa: S608 # of our own texts
# A row of this id from before, such as of a job that was enqueued twice. Not every role may change the archive.
REPLACE: LiteralString = """UPDATE
       SET queue = excluded.queue, job_type = excluded.job_type, payload = excluded.payload,
           attempts = excluded.attempts, enqueued_at = excluded.enqueued_at, process_at = excluded.process_at,
           status = excluded.status, finished_at = excluded.finished_at"""
RECORDED: LiteralString = """, recorded AS (
    INSERT INTO {job_attempt} (job_id, attempt, started_at, finished_at, outcome, message)
    SELECT job_id, attempts + 1, statement_timestamp(), statement_timestamp(), 'cancelled', %(message)s
      FROM removed
)"""
MAY: LiteralString = """
SELECT has_table_privilege('{archived_job}', 'UPDATE'), has_table_privilege(to_regclass('{job_attempt}'), 'INSERT')
"""


@dataclass(frozen=True, slots=True)
class Cancel(_OnQueuedJobs):
    """Archive jobs as failures, without running them. No failed-job callback is called."""

    message: str  # of the attempt's record: who did it
    is_recorded: bool = True

    def apply(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> list[ActedOn]:
        cursor.execute(for_tables(MAY, tables))
        [may_replace, may_record] = cursor.fetchone()
        recorded = self.is_recorded and may_record
        statement = for_tables(CANCEL, tables).format(
            on_conflict=REPLACE if may_replace else "NOTHING",
            recorded=for_tables(RECORDED, tables) if recorded else "",
        )
        cursor.execute(statement, {"job_ids": list(job_ids), "message": self.message})
        return [ActedOn(*row) for row in cursor.fetchall()]


# -- Archived jobs ---------------------------------------------------------------------------------------------------

IN_QUEUE: LiteralString = "SELECT job_id FROM {job} WHERE job_id = ANY(%s)"
RUN_AGAIN: LiteralString = """
WITH revived AS (
    INSERT INTO {job} (job_id, queue, job_type, payload, attempts, enqueued_at, process_at)
    SELECT job_id, queue, job_type, payload, 0, enqueued_at, statement_timestamp()
      FROM {archived_job} WHERE job_id = ANY(%(job_ids)s)
     ORDER BY job_id
        ON CONFLICT (job_id) DO NOTHING
 RETURNING job_id, job_type, queue
), removed AS (
    DELETE FROM {archived_job} AS archived USING revived WHERE archived.job_id = revived.job_id
)
SELECT job_id, job_type, queue FROM revived
"""


@dataclass(frozen=True, slots=True)
class RunAgain:
    """Move archived jobs back to their queues, as they were before their first attempt."""

    def left_alone(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> Mapping[UUID, Left]:
        cursor.execute(for_tables(IN_QUEUE, tables), [list(job_ids)])
        return {job_id: Left.QUEUED for (job_id,) in cursor.fetchall()}

    def apply(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> list[ActedOn]:
        cursor.execute(for_tables(RUN_AGAIN, tables), {"job_ids": list(job_ids)})
        return _woken(cursor, tables)


RUN_COPY: LiteralString = """
WITH copied AS (
    SELECT archived.*, copy_id
      FROM unnest(%(job_ids)s::uuid[], %(copy_ids)s::uuid[]) AS asked (job_id, copy_id)
      JOIN {archived_job} AS archived USING (job_id)
), inserted AS (
    INSERT INTO {job} (job_id, queue, job_type, payload, attempts, enqueued_at, process_at)
    SELECT copy_id, queue, job_type, payload, 0, statement_timestamp(), statement_timestamp() FROM copied
)
SELECT job_id, job_type, queue, copy_id FROM copied
"""


@dataclass(frozen=True, slots=True)
class RunCopy:
    """Enqueue jobs like archived ones, with ids of their own."""

    new_id: Callable[[], UUID] = uuid7

    def left_alone(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> Mapping[UUID, Left]:
        return {}

    def apply(self, cursor: CursorWrapper, tables: Tables, job_ids: Sequence[UUID]) -> list[ActedOn]:
        values: dict[str, Any] = {"job_ids": list(job_ids), "copy_ids": [self.new_id() for _ in job_ids]}
        cursor.execute(for_tables(RUN_COPY, tables), values)
        return _woken(cursor, tables)
