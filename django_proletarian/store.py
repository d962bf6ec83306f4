"""Every statement that reads or writes a job's row, and the connection that a worker thread claims with.

`enqueue` inserts on the caller's own connection. A worker thread claims, and records what became of the job, on its
`ClaimConnection`; one transaction there is one job. All times are the database's, unless `now` replaces them.

Source: proletarian/db.clj.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from django_proletarian import names
from django_proletarian.connection import ClaimConnection

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tables:
    """Where jobs live: each `table` or `schema.table`, made of letters, digits and underscores only."""

    job: str = "proletarian.job"
    archived_job: str = "proletarian.archived_job"


def quoted(table: str) -> str:
    """`schema.table` as SQL writes it, which Django passes through as a db_table."""
    return ".".join(f'"{part}"' for part in table.split("."))


@functools.cache
def _for_tables(statement: LiteralString, tables: Tables) -> str:
    return statement.format(job=quoted(tables.job), archived_job=quoted(tables.archived_job))


# -- Enqueue: on the caller's connection, in the caller's transaction ------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A row to be: names and payload as they will be stored, everything checked."""

    job_id: UUID
    queue: str
    job_type: str
    payload: str = field(repr=False)
    process_at: datetime | None  # aware; None for no date of its own
    process_in: timedelta | None  # from 0 up; counts only without a process_at


# A delay is seconds times a second, not an interval of days: those follow the session's time zone across DST.
# GREATEST passes over NULL, and so leaves "now" where there is neither a date nor a delay.
INSERT_JOB: LiteralString = """
INSERT INTO {job} (job_id, queue, job_type, payload, attempts, enqueued_at, process_at)
SELECT %s, %s, %s, %s, 0, clock.now,
       GREATEST(clock.now, COALESCE(%s::timestamptz, clock.now + %s::float8 * interval '1 second'))
  FROM (SELECT COALESCE(%s::timestamptz, statement_timestamp()) AS now) AS clock
    ON CONFLICT (job_id) DO NOTHING
"""


def insert_job(cursor: CursorWrapper, tables: Tables, job: NewJob, now: datetime | None) -> bool:
    """Insert one job; return False, having changed nothing, if its id is in the queue already.

    Source: proletarian/db.clj, enqueue!; proletarian/job.clj, process-at.
    """
    delay = None if job.process_in is None else job.process_in.total_seconds()
    values = (job.job_id, job.queue, job.job_type, job.payload, job.process_at, delay, now)
    cursor.execute(_for_tables(INSERT_JOB, tables), values)
    return bool(cursor.rowcount)


INSERT_JOBS: LiteralString = """
INSERT INTO {job} (job_id, queue, job_type, payload, attempts, enqueued_at, process_at)
SELECT new.job_id, new.queue, new.job_type, new.payload, 0, clock.now,
       GREATEST(clock.now, COALESCE(new.process_at, clock.now + new.delay * interval '1 second'))
  FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::float8[])
           AS new (job_id, queue, job_type, payload, process_at, delay),
       (SELECT COALESCE(%s::timestamptz, statement_timestamp()) AS now) AS clock
    ON CONFLICT (job_id) DO NOTHING
RETURNING job_id
"""


def insert_jobs(cursor: CursorWrapper, tables: Tables, jobs: Sequence[NewJob], now: datetime | None) -> set[UUID]:
    """Insert many jobs in one statement; return the ids of those that were not in the queue already."""
    values = (
        [job.job_id for job in jobs],
        [job.queue for job in jobs],
        [job.job_type for job in jobs],
        [job.payload for job in jobs],
        [job.process_at for job in jobs],
        [None if job.process_in is None else job.process_in.total_seconds() for job in jobs],
        now,
    )
    cursor.execute(_for_tables(INSERT_JOBS, tables), values)
    return {job_id for (job_id,) in cursor.fetchall()}


# -- Claim and record: on a worker thread's own connection -----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A locked row as it stands."""

    job_id: UUID
    queue: str
    job_type: str
    payload: str = field(repr=False)  # still encoded
    attempts: int  # before this attempt
    enqueued_at: datetime
    process_at: datetime


# statement_timestamp() is the database's clock and, unlike clock_timestamp(), may be compared in an index scan.
CLAIM_NEXT_JOB: LiteralString = """
SELECT job_id, queue, job_type, payload, attempts,
       extract(epoch FROM enqueued_at)::float8, extract(epoch FROM process_at)::float8
  FROM {job}
 WHERE queue = %s
   AND process_at <= COALESCE(%s::timestamptz, statement_timestamp())
 ORDER BY process_at
 LIMIT 1
   -- Rows that other workers have locked are passed over: nobody waits for anybody.
   FOR UPDATE SKIP LOCKED
"""


def claim_next_job(claim: ClaimConnection, tables: Tables, queue: str, now: datetime | None) -> ClaimedJob | None:
    """Begin a transaction, then lock and return the oldest due job of `queue`; None, with no transaction, without one.

    The lock lasts until the transaction of `claim` ends. `now` replaces the database's clock (aware; None means the
    clock itself).

    Source: proletarian/db.clj, get-next-job.
    """
    rows = claim.fetch_in_new_transaction(_for_tables(CLAIM_NEXT_JOB, tables), (names.to_stored(queue), now))
    if not rows:
        claim.commit()
        return None
    job_id, queue, job_type, payload, attempts, enqueued_at, process_at = rows[0]
    return ClaimedJob(
        job_id=job_id,
        queue=names.from_stored(queue),
        job_type=names.from_stored(job_type),
        payload=payload,
        attempts=attempts,
        enqueued_at=as_datetime(enqueued_at),
        process_at=as_datetime(process_at),
    )


def as_datetime(seconds: float) -> datetime:
    """Aware UTC datetime of `seconds` since 1970; a date outside Python's range becomes the nearest inside.

    Rows give their dates as such a number, for its text does not depend on any session's DateStyle or TimeZone.
    """
    try:
        return EPOCH + timedelta(microseconds=round(seconds * 1_000_000))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if seconds > 0 else datetime.min.replace(tzinfo=UTC)


# The row moves only if the archive has none with its id, so that no unique violation ends the transaction.
# DO UPDATE is not for the worker: its role may INSERT into the archive, as the original's, but not UPDATE.
ARCHIVE_JOB: LiteralString = """
WITH archived AS (
    INSERT INTO {archived_job}
           (job_id, queue, job_type, payload, attempts, enqueued_at, process_at, status, finished_at)
    SELECT job_id, queue, job_type, payload, attempts + 1, enqueued_at, process_at,
           %s, COALESCE(%s::timestamptz, statement_timestamp())
      FROM {job}
     WHERE job_id = %s
        ON CONFLICT (job_id) DO NOTHING
 RETURNING job_id
)
DELETE FROM {job} USING archived WHERE {job}.job_id = archived.job_id
RETURNING {job}.job_id
"""


def archive_job(claim: ClaimConnection, tables: Tables, job_id: UUID, status: str, now: datetime | None) -> bool:
    """Move the claimed job to the archive, counting this attempt; the caller commits.

    Return False, having changed nothing, if the archive has a row with this id.

    Source: proletarian/db.clj, archive-job! and delete-job!.
    """
    return bool(claim.fetch(_for_tables(ARCHIVE_JOB, tables), (names.to_stored(status), now, job_id)))


# The stale row is updated, not deleted and inserted: one statement, and an UPDATE right is all that it takes.
REPLACE_ARCHIVED_JOB: LiteralString = """
WITH finished AS (
    DELETE FROM {job} WHERE job_id = %s
 RETURNING *
)
UPDATE {archived_job} AS archived
   SET queue = finished.queue, job_type = finished.job_type, payload = finished.payload,
       attempts = finished.attempts + 1, enqueued_at = finished.enqueued_at, process_at = finished.process_at,
       status = %s, finished_at = COALESCE(%s::timestamptz, statement_timestamp())
  FROM finished
 WHERE archived.job_id = finished.job_id
"""


MAY_REPLACE_ARCHIVED_JOB: LiteralString = "SELECT has_table_privilege('{archived_job}', 'UPDATE')"
DELETE_JOB: LiteralString = "DELETE FROM {job} WHERE job_id = %s"


def replace_archived_job(
    claim: ClaimConnection, tables: Tables, job_id: UUID, status: str, now: datetime | None
) -> bool:
    """Move the claimed job to the archive over the row that has its id there; the caller commits.

    A role with the original's rights may not change the archive. Then the job only leaves the queue, for there it would
    run again for ever, the archive keeps its older row, and this returns False.
    """
    [(may_replace,)] = claim.fetch(_for_tables(MAY_REPLACE_ARCHIVED_JOB, tables))
    if may_replace:
        claim.fetch(_for_tables(REPLACE_ARCHIVED_JOB, tables), (job_id, names.to_stored(status), now))
    else:
        claim.fetch(_for_tables(DELETE_JOB, tables), (job_id,))
    return bool(may_replace)


RETRY_JOB: LiteralString = """
UPDATE {job}
   SET attempts = attempts + 1,
       process_at = COALESCE(%s::timestamptz, statement_timestamp()) + %s::float8 * interval '1 second'
 WHERE job_id = %s
RETURNING extract(epoch FROM process_at)::float8
"""


def retry_job(claim: ClaimConnection, tables: Tables, job_id: UUID, delay: timedelta, now: datetime | None) -> datetime:
    """Count the claimed job's attempt and make it due again `delay` from now; return when. The caller commits.

    Source: proletarian/db.clj, retry-at!.
    """
    rows = claim.fetch(_for_tables(RETRY_JOB, tables), (now, delay.total_seconds(), job_id))
    return as_datetime(rows[0][0])
