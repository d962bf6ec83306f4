"""Every statement that brings jobs in: on the caller's own connection, in the caller's transaction.

Called by the api. All times are the database's, unless `now` replaces them.

Source: proletarian/db.clj, enqueue!.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import psycopg
from django.db import ProgrammingError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from psycopg.errors import InvalidSqlStatementName
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from django_proletarian import priorities
from django_proletarian.tables import Tables, for_tables


class JobRow(NamedTuple):
    """A row to be: names and payload as they will be stored, everything checked."""

    job_id: UUID
    queue: str
    job_type: str
    payload: str
    process_at: datetime | None  # aware; None for no date of its own
    process_in: timedelta | None  # from 0 up; counts only without a process_at


# Django's cursor writes values into the text, and to PostgreSQL -1::text is minus a text: hence CAST.
# NOTIFY takes one lock for the whole server at commit, so it is sent only if a worker is asleep: see listener.py.
INSERT_JOB: LiteralString = """
INSERT INTO {{job}} (job_id, queue, job_type, payload, attempts, enqueued_at, process_at)
VALUES (%(job_id)s, %(queue)s, %(job_type)s, %(payload)s, 0, {enqueued_at}, {process_at})
    ON CONFLICT (job_id) DO NOTHING
RETURNING pg_backend_pid(), CASE WHEN NOT pg_try_advisory_xact_lock_shared(CAST(%(key)s AS bigint))
                                 THEN pg_notify('proletarian', CAST(CAST(%(key)s AS bigint) AS text))::text END,
          enqueued_at
"""
INSERT_DUE_JOB = INSERT_JOB.format(enqueued_at="statement_timestamp()", process_at="statement_timestamp()")
# A delay is seconds times a second, not an interval of days: those follow the session's time zone across DST.
# GREATEST passes over NULL, and so leaves "now" where there is neither a date nor a delay.
INSERT_JOB_WITH_TIMES = INSERT_JOB.format(
    enqueued_at="COALESCE(%(now)s::timestamptz, statement_timestamp())",
    process_at="""
        GREATEST(COALESCE(%(now)s::timestamptz, statement_timestamp()), COALESCE(%(process_at)s::timestamptz,
                 COALESCE(%(now)s::timestamptz, statement_timestamp()) + %(delay)s::float8 * interval '1 second'))""",
)


def insert_job(
    connection: BaseDatabaseWrapper,
    tables: Tables,
    row: JobRow,
    now: datetime | None,
    *,
    told: list[datetime] | None = None,
) -> bool:
    """Insert one job; return False, having changed nothing, if its id is in the queue already.

    Its enqueued_at is put into the list `told`, if there is one.

    Source: proletarian/db.clj, enqueue!; proletarian/job.clj, process-at.
    """
    values: dict[str, Any] = {
        "job_id": str(row.job_id),
        "queue": row.queue,
        "job_type": row.job_type,
        "payload": row.payload,
        "key": sleepers_key(tables, row.queue),
    }
    statement = INSERT_DUE_JOB
    if now or row.process_at or row.process_in:
        statement = INSERT_JOB_WITH_TIMES
        delay = None if row.process_in is None else row.process_in.total_seconds()
        values |= {"now": now, "process_at": row.process_at, "delay": delay}
    statement = for_tables(statement, tables)
    if connection.queries_logged or connection.execute_wrappers:
        # Someone wants to see every statement, such as assertNumQueries or a debug toolbar.
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            if told is not None:
                told += [enqueued_at for _, _, enqueued_at in cursor.fetchall()]
            return bool(cursor.rowcount)
    cursor_of_ours = _inserted(connection, statement, values)
    if told is not None:
        told += [enqueued_at for _, _, enqueued_at in cursor_of_ours.fetchall()]
    return bool(cursor_of_ours.rowcount)


PREPARED_AFTER = 5  # runs on one connection, as psycopg has it by default
RUNS = "proletarian_runs"  # kept with the psycopg connection: how many runs have shown that no pooler is between
_unpreparable: set[str] = set()  # aliases whose sessions lose their prepared statements; added to by any thread


def _inserted(
    connection: BaseDatabaseWrapper, statement: LiteralString, values: Mapping[str, Any]
) -> psycopg.Cursor[tuple[Any, ...]]:
    """Run the INSERT as `connection.cursor()` would, but prepared; return the cursor, with the answer still in it.

    Django switches psycopg's prepared statements off for the sake of poolers, where the next transaction may meet a
    server process that never heard of them. A pooler shows in the answer: not the process that the connection knows.
    """
    connection.validate_thread_sharing()
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    psycopg_connection: psycopg.Connection[Any] = connection.connection
    runs = vars(psycopg_connection).get(RUNS, 0)
    prepare = runs == PREPARED_AFTER and connection.alias not in _unpreparable
    cursor = psycopg.Cursor(psycopg_connection, row_factory=tuple_row)
    threshold = psycopg_connection.prepare_threshold
    psycopg_connection.prepare_threshold = 0 if prepare else None
    try:
        with connection.wrap_database_errors:
            cursor.execute(statement, values)
    except ProgrammingError as error:
        if not isinstance(error.__cause__, InvalidSqlStatementName):
            raise
        # Someone sent DISCARD ALL past psycopg, and may do so again.
        _unpreparable.add(connection.alias)
        if psycopg_connection.info.transaction_status != TransactionStatus.IDLE:
            raise
        return _inserted(connection, statement, values)
    finally:
        psycopg_connection.prepare_threshold = threshold
    if runs < PREPARED_AFTER and cursor.rowcount:
        [(server_process, *_)] = cursor.fetchall()
        cursor.scroll(0, mode="absolute")
        if server_process == psycopg_connection.info.backend_pid:
            vars(psycopg_connection)[RUNS] = runs + 1
    return cursor


INSERT_JOBS: LiteralString = """
WITH inserted AS (
    INSERT INTO {job} (job_id, queue, job_type, payload, attempts, enqueued_at, process_at)
    SELECT new.job_id, new.queue, new.job_type, new.payload, 0, clock.now,
           GREATEST(clock.now, COALESCE(new.process_at, clock.now + new.delay * interval '1 second'))
      FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::float8[])
               AS new (job_id, queue, job_type, payload, process_at, delay),
           (SELECT COALESCE(%s::timestamptz, statement_timestamp()) AS now) AS clock
        ON CONFLICT (job_id) DO NOTHING
 RETURNING job_id
), told AS (
    SELECT count(CASE WHEN NOT pg_try_advisory_xact_lock_shared(key) THEN pg_notify('proletarian', key::text)::text END)
      FROM unnest(%s::bigint[]) AS key
)
SELECT job_id FROM inserted CROSS JOIN told
"""


def insert_jobs(cursor: CursorWrapper, tables: Tables, jobs: Sequence[JobRow], now: datetime | None) -> set[UUID]:
    """Insert many jobs in one statement; return the ids of those that were not in the queue already."""
    values = (
        [job.job_id for job in jobs],
        [job.queue for job in jobs],
        [job.job_type for job in jobs],
        [job.payload for job in jobs],
        [job.process_at for job in jobs],
        [None if job.process_in is None else job.process_in.total_seconds() for job in jobs],
        now,
        [sleepers_key(tables, queue) for queue in {job.queue for job in jobs}],
    )
    cursor.execute(for_tables(INSERT_JOBS, tables), values)
    return {job_id for (job_id,) in cursor.fetchall()}


# COPY can't ask the clock for each row, nor tell sleepers: both are done first, in the same transaction.
BEFORE_COPY: LiteralString = """
SELECT extract(epoch FROM COALESCE(%s::timestamptz, statement_timestamp()))::float8,
       count(CASE WHEN NOT pg_try_advisory_xact_lock_shared(key) THEN pg_notify('proletarian', key::text)::text END)
  FROM unnest(%s::bigint[]) AS key
"""
COPY_JOBS: LiteralString = "COPY {job} (job_id, queue, job_type, payload, attempts, enqueued_at, process_at) FROM STDIN"
COPIED_AT_ONCE = 1000


def copy_jobs(cursor: CursorWrapper, tables: Tables, rows: Sequence[JobRow], now: datetime | None) -> None:
    """Insert many jobs whose ids are new, several times as fast as `insert_jobs`. Only inside a transaction."""
    keys = [sleepers_key(tables, queue) for queue in {row.queue for row in rows}]
    cursor.execute(for_tables(BEFORE_COPY, tables), (now, keys))
    enqueued_at = datetime.fromtimestamp(cursor.fetchone()[0], UTC)
    with cursor.db.wrap_database_errors, cursor.copy(for_tables(COPY_JOBS, tables)) as copy:
        for start in range(0, len(rows), COPIED_AT_ONCE):
            # Jobs of one process_at are all alike to a ClaimBounds; a microsecond is less than writing them takes.
            enqueued_at += timedelta(microseconds=1 if start else 0)
            copy.write("".join(_copied(rows[start : start + COPIED_AT_ONCE], enqueued_at)))


def _copied(rows: Sequence[JobRow], enqueued_at: datetime) -> Iterator[str]:
    at_once = now = enqueued_at.isoformat()
    for job_id, queue, job_type, payload, process_at, process_in in rows:
        due = at_once
        if process_at is not None:
            due = max(enqueued_at, process_at).isoformat()
        elif process_in is not None:
            due = (enqueued_at + process_in).isoformat()
        # The digits alone: with the dashes an id takes three times as long to write.
        yield f"{job_id.int:032x}\t{_name(queue)}\t{_name(job_type)}\t{_escaped(payload)}\t0\t{now}\t{due}\n"


def _escaped(text: str) -> str:
    # As COPY's text format wants it, the backslash first, for the others bring one in.
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


_name = functools.lru_cache(maxsize=1000)(_escaped)


WAKE_SLEEPERS: LiteralString = """
SELECT count(CASE WHEN NOT pg_try_advisory_xact_lock_shared(key) THEN pg_notify('proletarian', key::text)::text END)
  FROM unnest(%s::bigint[]) AS key
"""


def wake_sleepers(cursor: CursorWrapper, tables: Tables, stored_queues: Collection[str]) -> None:
    """Tell the workers that sleep on these queues, when the transaction commits, that jobs came by another way."""
    cursor.execute(WAKE_SLEEPERS, [[sleepers_key(tables, queue) for queue in stored_queues]])


@functools.lru_cache(maxsize=1000)
def sleepers_key(tables: Tables, stored_queue: str) -> int:
    """The advisory lock of the workers that sleep on a queue, and the payload of the notifications that wake them.

    All priorities of a queue share one, since a worker is asked for the queue.
    """
    queue, _priority = priorities.split(stored_queue)
    digest = hashlib.blake2b(f"{tables.job} {queue}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
