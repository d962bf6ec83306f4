"""Delete archived jobs that are old enough, a batch at a time: for proletarian_prune, and beside a running worker.

One session of all the fleet deletes at a time, under an advisory lock that lasts for a batch's transaction.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

import psycopg
from django.db import Error as DjangoDatabaseError

from django_proletarian import log as events
from django_proletarian import names, schema
from django_proletarian.connection import COMMIT, PrivateConnection, Statement
from django_proletarian.errors import ProletarianError
from django_proletarian.log import EventLog
from django_proletarian.outage import is_permanent
from django_proletarian.tables import Tables, for_tables, quoted

INTERVAL = 60.0  # seconds between a worker process's looks for what has become old enough
BATCH_SIZE = 1000  # rows; a few milliseconds
# A worker process prunes for at most one part in so many of its time, so that jobs hardly notice.
PAUSE_FACTOR = 10


class CanNotPrune(ProletarianError):
    """The archive lacks the index, or the role the right, that pruning needs. The message says what to run."""


# -- One batch -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Old:
    """Which archived jobs to delete."""

    older_than: float  # seconds since finished_at
    status: str | None = None  # None for any
    queues: tuple[str, ...] | None = None  # None for all
    levels: tuple[str, ...] = ()  # names under which jobs of these queues are stored that have a priority


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the order of finished_at and job_id a walk over the archive has come to, both as the server tells."""

    finished_at: str  # seconds since 1970
    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one transaction did."""

    pruned: int
    place: Place | None  # to go on from; None for the beginning
    is_last: bool  # it came to the first row that is not old enough


# At most so many rows are looked at, not deleted, so that a batch is short however few of them are to go: those that
# other statuses keep for longer, or other queues'. The next batch goes on after them.
PRUNE: LiteralString = """
WITH walked AS MATERIALIZED (
    SELECT ctid AS row_id, finished_at, job_id,
           status = COALESCE($2, status) AND queue = ANY(COALESCE($3, ARRAY[queue])) AS is_asked_for
      FROM {archived_job}
     WHERE finished_at < COALESCE($4, statement_timestamp()) - $1 * interval '1 second'
       AND (finished_at, job_id) > (COALESCE(to_timestamp($5), '-infinity'),
                                    COALESCE($6, '00000000-0000-0000-0000-000000000000'))
     ORDER BY finished_at, job_id
     LIMIT {limit}
), pruned AS (
    DELETE FROM {archived_job}
     WHERE ctid = ANY(ARRAY(SELECT row_id FROM walked WHERE is_asked_for))
       -- Again, for a job that was run again while this waited for its row: that has a new finished_at. With a sum, so
       -- that the rows are found by their place alone: the index might mean all that are old enough.
       AND finished_at + interval '0' < COALESCE($4, statement_timestamp()) - $1 * interval '1 second'
 RETURNING job_id
){attempts}
SELECT (SELECT count(*) FROM pruned), (SELECT count(*) FROM walked), extract(epoch FROM finished_at)::float8, job_id
  FROM walked
 ORDER BY finished_at DESC, job_id DESC
 LIMIT 1
"""
# A job of this id that waits in the queue, enqueued or put back again, keeps what is known of it.
PRUNE_ATTEMPTS: LiteralString = """, attempts AS (
    DELETE FROM {job_attempt} AS attempt
     USING pruned
     WHERE attempt.job_id = pruned.job_id
       AND NOT EXISTS (SELECT FROM {job} AS job WHERE job.job_id = pruned.job_id)
)"""
MAY_PRUNE_ATTEMPTS: LiteralString = """
SELECT has_table_privilege(to_regclass('{job_attempt}'), 'SELECT, DELETE') AND has_table_privilege('{job}', 'SELECT')
"""
PRUNE_TYPES = ("float8", "text", "text[]", "timestamptz", "float8", "uuid")
# Shorter than the server waits before it looks for deadlocks: it is never a job's transaction that is cut off.
GIVE_UP = "SET LOCAL lock_timeout = '300ms'"
TRY_LOCK = "SELECT pg_try_advisory_xact_lock({key})"


def prune_batch(
    connection: PrivateConnection,
    tables: Tables,
    old: Old,
    now: datetime | None,
    *,
    place: Place | None = None,
    batch_size: int = BATCH_SIZE,
) -> Batch | None:
    """Delete what is old enough among the next `batch_size` archived jobs after `place`, the oldest first, and commit.

    None, if another session prunes just now: nothing was done. `now` replaces the database's clock. Raises CanNotPrune
    if nothing but a person can help, otherwise psycopg's errors, or Django's where connecting failed; after an error
    the caller must close the connection.
    """
    try:
        begin, lock = connection.begin(), TRY_LOCK.format(key=_lock_key(tables))
        [(locked,)] = connection.send(begin, GIVE_UP, lock)
        if locked != "t":
            connection.send(COMMIT)
            return None
        if place is None and not connection.send(schema.finished_at_indexes(tables)):
            raise CanNotPrune(
                f"{tables.archived_job} has no index on finished_at, and each batch would read all of it. Its owner "
                f"should build one: {schema.create_finished_at_index(tables, concurrently=True)}"
            )
        with_attempts = connection.is_true(for_tables(MAY_PRUNE_ATTEMPTS, tables))
        statement = _prune(tables, batch_size, with_attempts=with_attempts)
        since = (None, None) if place is None else (place.finished_at, place.job_id)
        rows = connection.send(connection.call(statement, old.older_than, *_stored(old), now, *since))
        connection.send(COMMIT)
    except psycopg.errors.InsufficientPrivilege as error:
        raise CanNotPrune(
            f'The role that database "{connection.database}" is used as lacks a right: {error}. Prune as the owner of '
            f"the table, or let the owner give it the right: GRANT SELECT, DELETE ON {tables.archived_job} TO …"
        ) from error
    if not rows:
        return Batch(pruned=0, place=place, is_last=True)
    [(pruned, walked, finished_at, job_id)] = rows
    return Batch(pruned=int(pruned), place=Place(finished_at, job_id), is_last=int(walked) < batch_size)


@functools.cache
def _prune(tables: Tables, batch_size: int, *, with_attempts: bool) -> Statement:
    attempts = for_tables(PRUNE_ATTEMPTS, tables) if with_attempts else ""
    # The limit is in the text: a plan for any limit would be one for many rows.
    text = PRUNE.format(archived_job=quoted(tables.archived_job), limit=batch_size, attempts=attempts)
    return Statement(f"proletarian_prune_{batch_size}", PRUNE_TYPES, text)


@functools.cache
def _for_archive(statement: LiteralString, tables: Tables, limit: int | None = None) -> str:
    return statement.format(archived_job=quoted(tables.archived_job), limit=limit)


def _stored(old: Old) -> tuple[str | None, list[str] | None]:
    return (
        None if old.status is None else names.to_stored(old.status),
        None if old.queues is None else [names.to_stored(queue) for queue in (*old.queues, *old.levels)],
    )


@functools.cache
def _lock_key(tables: Tables) -> int:
    digest = hashlib.blake2b(f"prune {tables.archived_job}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


# -- How many ---------------------------------------------------------------------------------------------------------

MOST_COUNTED = 100_000  # rows that are looked at


@dataclass(frozen=True, slots=True)
class Count:
    """A number of archived jobs, or the server's estimate of it."""

    rows: int
    is_exact: bool


# Those that are old enough stand at the beginning of the index, and no more of them are read than are counted.
COUNT_OLD: LiteralString = """
WITH walked AS MATERIALIZED (
    SELECT status = COALESCE($2, status) AND queue = ANY(COALESCE($3, ARRAY[queue])) AS is_asked_for
      FROM {archived_job}
     WHERE finished_at < COALESCE($4, statement_timestamp()) - $1 * interval '1 second'
     ORDER BY finished_at
     LIMIT {limit}
)
SELECT count(*), count(*) FILTER (WHERE is_asked_for) FROM walked
"""
# Without parameters, so that the estimate is one for these values.
ESTIMATE_OLD: LiteralString = """
EXPLAIN (FORMAT JSON)
SELECT FROM {archived_job}
 WHERE finished_at < COALESCE($4, now()) - $1 * interval '1 second'
   AND ($2 IS NULL OR status = $2) AND ($3 IS NULL OR queue = ANY($3))
"""


def count_old(connection: PrivateConnection, tables: Tables, old: Old, now: datetime | None) -> Count:
    """How many archived jobs a prune would delete; an estimate if more than `MOST_COUNTED` are old enough."""
    count = Statement("proletarian_count_old", PRUNE_TYPES[:4], _for_archive(COUNT_OLD, tables, MOST_COUNTED + 1))
    values = (old.older_than, *_stored(old), now)
    [(walked, found)] = connection.send(connection.call(count, *values))
    if int(walked) <= MOST_COUNTED:
        return Count(int(found), is_exact=True)
    estimate = Statement("proletarian_estimate_old", PRUNE_TYPES[:4], _for_archive(ESTIMATE_OLD, tables))
    [(plan,)] = connection.send(connection.inline(estimate, *values))
    # A table that was never analyzed may be estimated at less than has been seen.
    return Count(max(int(json.loads(plan)[0]["Plan"]["Plan Rows"]), int(found)), is_exact=False)


# -- Beside a running worker -----------------------------------------------------------------------------------------


class Pruner:
    """Deletes what the RETENTION setting lets go while a worker runs, on a thread and a connection of its own.

    So no job ever waits for it. `start` and `stop` are called by the worker's threads; all else runs in its own.
    """

    def __init__(
        self,
        database: str,
        name: str,
        tables: Tables,
        retention: Mapping[str, float],
        *,
        now: Callable[[], datetime | None],
        log: EventLog,
    ) -> None:
        self._connection = PrivateConnection(database, name)
        self._tables = tables
        self._olds = [Old(older_than=seconds, status=status) for status, seconds in retention.items()]
        self._now = now
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # Where each walk has come to: what was passed over once is kept by another rule, and need not be read again.
        self._places: dict[Old, Place | None] = {}

    def start(self) -> None:
        """Begin some time soon: many workers that start together should not all look at once."""
        self._thread.start()

    def stop(self) -> None:
        """Return when the batch that runs now, if one does, has ended."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause = INTERVAL * random.uniform(0, 1)  # noqa: S311 # no secret
        is_failing = False
        while not self._stop.wait(pause):
            pause = INTERVAL * random.uniform(0.5, 1)  # noqa: S311
            try:
                with self._connection:
                    for old in self._olds:
                        self._prune(old)
                is_failing = False
            except psycopg.errors.LockNotAvailable:
                pass  # a job that ran again is just replacing one of those rows
            except (psycopg.Error, DjangoDatabaseError, CanNotPrune) as error:
                if not is_failing:
                    self._log(events.RETENTION_ERROR, error=error)
                is_failing = True
                if isinstance(error, CanNotPrune) or is_permanent(error):
                    return  # only a person can mend it

    def _prune(self, old: Old) -> None:
        """Delete all that is old enough, unless another session is at it already."""
        pruned = 0
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                batch = prune_batch(self._connection, self._tables, old, self._now(), place=self._places.get(old))
                if batch is None:
                    break
                pruned += batch.pruned
                self._places[old] = batch.place
                if batch.is_last:
                    break
                self._stop.wait((time.monotonic() - began) * PAUSE_FACTOR)
        finally:
            if pruned:
                self._log(events.ARCHIVED_JOBS_PRUNED, status=old.status, pruned=pruned)
