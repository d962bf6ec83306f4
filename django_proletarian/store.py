"""Every statement with which a worker reads or writes a job's row; `inserts` has those that bring rows in.

A worker thread claims, and records what became of the job, on its `ClaimConnection`; one transaction there is one job.
All times are the database's, unless `now` replaces them.

Source: proletarian/db.clj.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from django.db.backends.utils import CursorWrapper
from psycopg.errors import LockNotAvailable

from django_proletarian import names
from django_proletarian.connection import COMMIT, ClaimConnection, PrivateConnection, Statement
from django_proletarian.levels import Levels, levels_of
from django_proletarian.tables import Tables, for_tables


class ClaimedJob(NamedTuple):  # which is made in half the time of a dataclass
    """A locked row as it stands."""

    job_id: str  # a UUID's text, which goes back to the server as it is
    queue: str
    job_type: str
    payload: str  # still encoded
    attempts: int  # before this attempt
    enqueued_at: float  # seconds since 1970, as is process_at; see as_datetime
    process_at: float
    is_archived: bool  # the archive has a row of this id from before


class ClaimBounds:
    """Where a thread's next claim begins to look, so that it need not walk over the entries of jobs that are gone.

    Index entries of finished jobs stay as long as any transaction on the server might still see them, and every claim
    from the beginning walks over all of them. Due jobs are claimed in the order of process_at, so beginning at the last
    claimed job's passes over nothing but jobs that were committed late, or that others put back. Those are found by a
    claim from the beginning, made when the bounded one finds nothing, and every `seconds` at the least.

    Used by one thread.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._since: dict[str, float] = {}
        self._from_the_beginning_at: dict[str, float] = {}

    def rounds(self, queues: Sequence[str]) -> Iterator[list[tuple[str, float | None]]]:
        """Queues with the bounds to claim with, a statement's worth at once, until a job is found; None for no bound.

        A queue that is empty but for entries of jobs that are gone must not cost each claim of the next queue a walk
        over them, so all queues are tried within their bounds first.
        """
        first: list[tuple[str, float | None]] = []
        bounded = []
        for queue in queues:
            since = self._since.get(queue)
            if since is not None and time.monotonic() - self._from_the_beginning_at[queue] < self._seconds:
                bounded.append(queue)
                first.append((queue, since))
            else:
                self._from_the_beginning_at[queue] = time.monotonic()
                first.append((queue, None))
        yield first
        if bounded:
            self._from_the_beginning_at.update(dict.fromkeys(bounded, time.monotonic()))
            yield [(queue, None) for queue in bounded]

    def claimed(self, queue: str, process_at: float) -> None:
        """Note the process_at, in seconds since 1970, of a job that was just claimed."""
        self._since[queue] = process_at


# statement_timestamp() is the database's clock and, unlike clock_timestamp(), may be compared in an index scan.
# The archive is asked, outside, about what was locked: inside it would be asked about every row passed over.
CLAIM_DUE_JOBS: LiteralString = """
SELECT job_id, job_type, payload, attempts,
       date_part('epoch', enqueued_at), date_part('epoch', process_at),
       (SELECT 1 FROM {archived_job} AS archived WHERE archived.job_id = next.job_id)
  FROM (
    SELECT *
      FROM {job}
     WHERE queue = $1
       AND process_at <= COALESCE($2, statement_timestamp())
       AND process_at >= COALESCE(to_timestamp($3), '-infinity'){{only}}
     ORDER BY process_at
     LIMIT {{limit}}
       -- Rows that other workers have locked are passed over: nobody waits for anybody.
       FOR UPDATE SKIP LOCKED
  ) AS next
"""
# Queue after queue in one statement. The outer limit ends the loop with the last job that is wanted, so that no more
# are locked than are returned; the order is that in which the loop comes by them, and is not sorted.
CLAIM_DUE_JOBS_OF_QUEUES: LiteralString = """
SELECT next.job_id, next.job_type, next.payload, next.attempts,
       date_part('epoch', next.enqueued_at), date_part('epoch', next.process_at),
       (SELECT 1 FROM {archived_job} AS archived WHERE archived.job_id = next.job_id), asked.place
  FROM unnest($1, $3) WITH ORDINALITY AS asked (queue, since, place)
 CROSS JOIN LATERAL (
    SELECT *
      FROM {job}
     WHERE queue = asked.queue
       AND process_at <= COALESCE($2, statement_timestamp())
       AND process_at >= COALESCE(to_timestamp(asked.since), '-infinity')
     ORDER BY process_at
     LIMIT {{limit}}
       FOR UPDATE SKIP LOCKED
  ) AS next
 ORDER BY asked.place
 LIMIT {{limit}}
"""


def claim_due_jobs(
    claim: ClaimConnection,
    tables: Tables,
    queues: Sequence[str],
    now: datetime | None = None,
    *,
    limit: int = 1,
    bounds: ClaimBounds | None = None,
    only: UUID | None = None,
    first: Sequence[str] = (),
) -> list[ClaimedJob]:
    """Begin a transaction, then lock and return at most `limit` due jobs: the first queue's, oldest first, and so on.

    The locks last until the transaction of `claim` ends. If nothing is due no transaction is open. `now` replaces the
    database's clock (aware; None means the clock itself). `only` is the id of the one job that is wanted. `first` are
    statements to send in the same message before, such as those that settle the jobs before.

    Source: proletarian/db.clj, get-next-job.
    """
    bounds = bounds or ClaimBounds()
    opening = [*first, claim.begin()]
    for asked in bounds.rounds(queues):
        if len(asked) == 1:
            [(queue, since)] = asked
            statement = claim_statement(tables, limit, one_job=only is not None)
            wanted = () if only is None else (only,)
            call = claim.call(statement, names.to_stored(queue), now, since, *wanted)
            jobs = [_claimed_job(queue, row) for row in claim.send(*opening, call)]
        else:
            stored = [names.to_stored(queue) for queue, _ in asked]
            numbers = ",".join("NULL" if since is None else str(since) for _, since in asked)
            call = claim.call(claim_of_queues_statement(tables, limit), stored, now, f"{{{numbers}}}")
            jobs = [_claimed_job(asked[int(place) - 1][0], row) for *row, place in claim.send(*opening, call)]
        opening = []
        if jobs:
            # The oldest, since those of a batch that are not begun are due again at once.
            for job in reversed(jobs):
                bounds.claimed(job.queue, job.process_at)
            return jobs
    claim.send(COMMIT)
    return []


@functools.cache
def claim_statement(tables: Tables, limit: int, *, one_job: bool = False) -> Statement:
    """The claim of at most `limit` jobs. The limit is in the text: a plan for any limit would be one for many rows.

    With `one_job` there is a parameter more, the id of the job.
    """
    text = for_tables(CLAIM_DUE_JOBS, tables).format(limit=limit, only=" AND job_id = $4" if one_job else "")
    types = ("text", "timestamptz", "float8")
    if one_job:
        return Statement("proletarian_claim_one", (*types, "uuid"), text)
    return Statement(f"proletarian_claim_{limit}", types, text)


@functools.cache
def claim_of_queues_statement(tables: Tables, limit: int) -> Statement:
    """The claim of at most `limit` jobs of several queues."""
    text = for_tables(CLAIM_DUE_JOBS_OF_QUEUES, tables).format(limit=limit)
    return Statement(f"proletarian_claim_of_queues_{limit}", ("text[]", "timestamptz", "float8[]"), text)


def _claimed_job(queue: str, row: Sequence[Any]) -> ClaimedJob:
    job_id, job_type, payload, attempts, enqueued_at, process_at, archived = row
    return ClaimedJob(
        job_id,
        queue,
        names.from_stored(job_type),
        payload,
        int(attempts),
        float(enqueued_at),
        float(process_at),
        archived is not None,
    )


def as_datetime(seconds: float) -> datetime:
    """Aware UTC datetime of `seconds` since 1970; a date outside Python's range becomes the nearest inside.

    Rows give their dates as such a number, for its text does not depend on any session's DateStyle or TimeZone.
    """
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC) if seconds > 0 else datetime.min.replace(tzinfo=UTC)


# A row of this id in the archive is dealt with by replace_archived_job. DO NOTHING is for one that came since the
# claim: a unique violation would end the transaction, and the job would run again for ever.
ARCHIVE_JOBS: LiteralString = """
WITH finished AS (
    DELETE FROM {job} WHERE job_id = ANY($1)
 RETURNING *
)
INSERT INTO {archived_job}
       (job_id, queue, job_type, payload, attempts, enqueued_at, process_at, status, finished_at)
SELECT job_id, queue, job_type, payload, attempts + 1, enqueued_at, process_at,
       $2, COALESCE($3, statement_timestamp())
  FROM finished
    ON CONFLICT (job_id) DO NOTHING
"""


def archiving(claim: ClaimConnection, tables: Tables, job_ids: Sequence[str], status: str, now: datetime | None) -> str:
    """SQL that moves claimed jobs to the archive, counting this attempt.

    Source: proletarian/db.clj, archive-job! and delete-job!.
    """
    statement = _statement("proletarian_archive", ARCHIVE_JOBS, ("uuid[]", "text", "timestamptz"), tables)
    # As the text of an array: the ids are UUIDs' texts, in which nothing needs a quote.
    return claim.call(statement, f"{{{','.join(job_ids)}}}", names.to_stored(status), now)


# The stale row is updated, not deleted and inserted: one statement, and an UPDATE right is all that it takes.
REPLACE_ARCHIVED_JOB: LiteralString = """
WITH finished AS (
    DELETE FROM {job} WHERE job_id = $1
 RETURNING *
)
UPDATE {archived_job} AS archived
   SET queue = finished.queue, job_type = finished.job_type, payload = finished.payload,
       attempts = finished.attempts + 1, enqueued_at = finished.enqueued_at, process_at = finished.process_at,
       status = $2, finished_at = COALESCE($3, statement_timestamp())
  FROM finished
 WHERE archived.job_id = finished.job_id
"""
MAY_REPLACE_ARCHIVED_JOB: LiteralString = "SELECT has_table_privilege('{archived_job}', 'UPDATE')"
DELETE_JOB: LiteralString = "DELETE FROM {job} WHERE job_id = $1"


def replace_archived_job(
    claim: ClaimConnection, tables: Tables, job_id: str, status: str, now: datetime | None
) -> bool:
    """Move the claimed job to the archive over the row that has its id there; the caller commits.

    A role with the original's rights may not change the archive. Then the job only leaves the queue, for there it would
    run again for ever, the archive keeps its older row, and this returns False.
    """
    may_replace = claim.is_true(for_tables(MAY_REPLACE_ARCHIVED_JOB, tables))
    if may_replace:
        statement = _statement("proletarian_replace", REPLACE_ARCHIVED_JOB, ("uuid", "text", "timestamptz"), tables)
        claim.send(claim.call(statement, job_id, names.to_stored(status), now))
    else:
        claim.send(claim.call(_statement("proletarian_delete", DELETE_JOB, ("uuid",), tables), job_id))
    return may_replace


RETRY_JOB: LiteralString = """
UPDATE {job}
   SET attempts = attempts + 1, process_at = COALESCE($3, statement_timestamp()) + $2 * interval '1 second'
 WHERE job_id = $1
RETURNING extract(epoch FROM process_at)::float8
"""


def retry_job(claim: ClaimConnection, tables: Tables, job_id: str, delay: timedelta, now: datetime | None) -> datetime:
    """Count the claimed job's attempt and make it due again `delay` from now; return when. The caller commits.

    Source: proletarian/db.clj, retry-at!.
    """
    statement = _statement("proletarian_retry", RETRY_JOB, ("uuid", "float8", "timestamptz"), tables)
    [(process_at,)] = claim.send(claim.call(statement, job_id, delay.total_seconds(), now))
    return as_datetime(float(str(process_at)))


@functools.cache
def _statement(name: str, text: LiteralString, types: tuple[str, ...], tables: Tables) -> Statement:
    return Statement(name, types, for_tables(text, tables))


# -- Leases: jobs that run while nobody holds their rows' locks -------------------------------------------------------

# A lease is known by its row's exact process_at, in whole microseconds since 1970, and by the attempt that it counted.
BEGIN_LEASE: LiteralString = """
UPDATE {job}
   SET attempts = attempts + 1, process_at = COALESCE($3, statement_timestamp()) + $2 * interval '1 second'
 WHERE job_id = $1
RETURNING (extract(epoch FROM process_at) * 1000000)::int8,
          (extract(epoch FROM COALESCE($3, statement_timestamp())) * 1000000)::int8
"""


def begin_lease(
    claim: ClaimConnection, tables: Tables, job_id: str, seconds: float, now: datetime | None
) -> tuple[int, int]:
    """Count the claimed job's attempt and put it off by `seconds`; return until when, and what time it is.

    Both in microseconds since 1970. The caller commits.
    """
    statement = _statement("proletarian_begin_lease", BEGIN_LEASE, ("uuid", "float8", "timestamptz"), tables)
    [(until, at)] = claim.send(claim.call(statement, job_id, seconds, now))
    return int(until), int(at)


# A row that somebody has locked, such as the handler itself in a fenced transaction, is left as it is.
EXTEND_LEASE: LiteralString = """
WITH own AS (
    SELECT job_id FROM {job}
     WHERE job_id = $1 AND attempts = $2 AND extract(epoch FROM process_at) * 1000000 = ANY($3)
       FOR UPDATE SKIP LOCKED
), extended AS (
    UPDATE {job} AS job
       SET process_at = timestamptz 'epoch' + $4 * interval '1 microsecond'
      FROM own
     WHERE job.job_id = own.job_id
 RETURNING 1
)
SELECT (SELECT count(*) FROM extended),
       (SELECT count(*) FROM {job}
         WHERE job_id = $1 AND attempts = $2 AND extract(epoch FROM process_at) * 1000000 = ANY($3)),
       (extract(epoch FROM COALESCE($5, statement_timestamp())) * 1000000)::int8
"""


class LeaseRow(NamedTuple):
    """A leased job's row, as one who has the lease knows it."""

    job_id: str
    attempts: int  # this one counted
    until: tuple[int, ...]  # what its process_at may be, in microseconds since 1970: of several an answer was lost


def extend_lease(
    connection: PrivateConnection, tables: Tables, row: LeaseRow, until: int, now: datetime | None
) -> tuple[bool, bool, int]:
    """Put the job off until then, in microseconds since 1970, if the lease is still ours and nobody has locked its row.

    Returns whether that was done, whether the lease was ours, and what time it is in microseconds since 1970.
    """
    statement = _statement(
        "proletarian_extend_lease", EXTEND_LEASE, ("uuid", "int4", "numeric[]", "int8", "timestamptz"), tables
    )
    own = connection.inline(statement, row.job_id, row.attempts, list(row.until), until, now)
    [(extended, ours, at)] = connection.send(own)
    return extended == "1", ours == "1", int(at)


RESUME_LEASED_JOB: LiteralString = """
UPDATE {job}
   SET attempts = attempts - 1, process_at = to_timestamp($4)
 WHERE job_id = $1 AND attempts = $2 AND extract(epoch FROM process_at) * 1000000 = ANY($3)
RETURNING 1
"""


def resume_leased_job(
    connection: PrivateConnection, tables: Tables, row: LeaseRow, process_at: float, seconds: float
) -> bool:
    """Begin a transaction, and lock the leased job in the state that it was claimed in; False if the lease is not ours.

    `process_at`, in seconds since 1970, is what the row had. Waits at most `seconds` for one who has locked the row:
    after the lease's end it may be a worker that runs the job. Without the lease no transaction is open.
    """
    statement = _statement(
        "proletarian_resume_leased", RESUME_LEASED_JOB, ("uuid", "int4", "numeric[]", "float8"), tables
    )
    waiting = f"SET LOCAL lock_timeout = {max(1, int(seconds * 1000))}"
    resume = connection.inline(statement, row.job_id, row.attempts, list(row.until), process_at)
    try:
        ours = connection.send(connection.begin(), waiting, resume)
    except LockNotAvailable:
        connection.close()
        return False
    connection.send(WAITING_AS_USUAL if ours else COMMIT)
    return bool(ours)


OWN_LEASED_JOB: LiteralString = """
SELECT 1 FROM {job}
 WHERE job_id = %s AND attempts = %s AND extract(epoch FROM process_at) * 1000000 = ANY(%s::numeric[])
   FOR UPDATE
"""


def hold_leased_job(cursor: CursorWrapper, tables: Tables, row: LeaseRow) -> bool:
    """Lock the leased job until the cursor's transaction ends; False if the lease is not ours.

    Waits for one who has the row locked: he may be about to settle the job.
    """
    cursor.execute(for_tables(OWN_LEASED_JOB, tables), [row.job_id, row.attempts, list(row.until)])
    return cursor.fetchone() is not None


# -- Crashes: on a connection that claims jobs whose worker process died ----------------------------------------------

# Waits, unlike all other claims. When a job has killed its process, a worker that polls may take it before its crash
# can be counted. That worker will be its next victim, and the lock then goes to who waits for it, before any worker can
# poll: so the job does not go round all workers of all hosts before it is counted once.
CLAIM_CRASHED_JOB: LiteralString = """
SELECT job_id, job_type, payload, attempts,
       extract(epoch FROM enqueued_at)::float8, extract(epoch FROM process_at)::float8,
       (SELECT 1 FROM {archived_job} AS archived WHERE archived.job_id = next.job_id), queue
  FROM (
    SELECT *
      FROM {job}
     WHERE job_id = $1 AND attempts = $2
       FOR UPDATE
  ) AS next
"""
# The state in which the dead process had claimed it.
END_CRASHED_LEASE: LiteralString = """
UPDATE {job} SET attempts = attempts - 1, process_at = to_timestamp($3) WHERE job_id = $1 AND attempts = $2 + 1
"""
WAITING_AT_MOST = "SET LOCAL lock_timeout = '1s'"
WAITING_AS_USUAL = "SET LOCAL lock_timeout TO DEFAULT"


def claim_crashed_job(
    claim: ClaimConnection, tables: Tables, job_id: UUID, attempts: int, leased_from: float | None = None
) -> tuple[ClaimedJob | None, bool]:
    """Begin a transaction, then lock and return the job if it still waits with so many attempts.

    `leased_from` is the process_at, in seconds since 1970, that it had before its lease; None without one. With None
    comes whether it may wait, but was locked for a second: by another worker, or by the dead one's connection.
    """
    statement = _statement("proletarian_claim_crashed", CLAIM_CRASHED_JOB, ("uuid", "int4"), tables)
    ending = []
    if leased_from is not None:
        end = _statement("proletarian_end_crashed_lease", END_CRASHED_LEASE, ("uuid", "int4", "float8"), tables)
        ending = [claim.inline(end, job_id, attempts, leased_from)]
    try:
        rows = claim.send(claim.begin(), WAITING_AT_MOST, *ending, claim.call(statement, job_id, attempts))
    except LockNotAvailable:
        claim.send("ROLLBACK")
        return None, True
    if not rows:
        claim.send(COMMIT)
        return None, False
    # A failed-job callback may have locks of its own to wait for.
    claim.send(WAITING_AS_USUAL)
    [[*row, queue]] = rows
    return _claimed_job(names.from_stored(queue), row), False


# -- Sleep: when nothing is due ---------------------------------------------------------------------------------------

# One statement, outside a transaction, so that an idle worker sends one query. The locks end with it.
NEXT_DUE: LiteralString = """
WITH {{levels}}
SELECT min(COALESCE(due.seconds, later.seconds))
  FROM (SELECT unnest($1)
         UNION
        SELECT queue FROM levels
         WHERE queue ~ '[+-]([1-9][0-9]?|100)$' AND queue <> ALL ($3)) AS asked (queue)
  LEFT JOIN LATERAL (
    SELECT 0::float8 AS seconds
      FROM {job}
     WHERE queue = asked.queue AND process_at <= COALESCE($2, statement_timestamp())
     ORDER BY process_at
     LIMIT 1
       FOR UPDATE SKIP LOCKED
  ) AS due ON TRUE
  LEFT JOIN LATERAL (
    SELECT extract(epoch FROM process_at - COALESCE($2, statement_timestamp()))::float8 AS seconds
      FROM {job}
     WHERE queue = asked.queue AND process_at > COALESCE($2, statement_timestamp())
     ORDER BY process_at
     LIMIT 1
  ) AS later ON TRUE
"""


def seconds_to_next_job(
    claim: ClaimConnection, tables: Tables, levels: Levels, now: datetime | None, *, first: Sequence[str] = ()
) -> float | None:
    """Seconds until a job of the queues, whatever its priority, can be claimed; 0 if one can be now, None if none is.

    `first` are statements to send in the same message before.
    """
    call = claim.call(next_due_statement(tables), levels.asked, now, levels.own)
    [(seconds,)] = claim.send(*first, call)
    return None if seconds is None else float(seconds)


@functools.cache
def next_due_statement(tables: Tables) -> Statement:
    """The look for the next due job."""
    text = for_tables(NEXT_DUE, tables).format(levels=levels_of(tables))
    return Statement("proletarian_next_due", ("text[]", "timestamptz", "text[]"), text)
