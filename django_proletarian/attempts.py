"""What is kept of attempts at jobs: rows of job_attempt, written in the transaction that decides about the job.

Called by the worker. By default only attempts that did not succeed leave a row, so that success costs nothing.
"""

from __future__ import annotations

import functools
import time
import traceback
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, LiteralString, NamedTuple

from django.db.backends.utils import CursorWrapper

from django_proletarian.connection import ClaimConnection, Statement
from django_proletarian.tables import Tables, for_tables

RecordAttempts = Literal["failures", "all", "none"]  # "failures" are all that did not succeed
RECORD_ATTEMPTS = ("failures", "all", "none")

MOST_TEXT = 20_000  # characters of a traceback, and of a message; the middle of a longer one is left out
MOST_RESULT = 1_000_000  # characters; a longer one is not kept
PACKAGE = str(Path(__file__).parent)


class Failed(NamedTuple):
    """An exception as it is kept, in texts that PostgreSQL can store."""

    exception_class: str  # with its module, but for the built-in ones
    message: str
    traceback: str

    @classmethod
    def by(cls, error: BaseException) -> Failed:
        """What to keep of `error`. Calls the exceptions' own `__str__`, and never raises what that raises."""
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        told = traceback.TracebackException(kind, error, _from_handler(error.__traceback__), compact=True)
        return cls(
            exception_class=storable(f"{module}{kind.__qualname__}"),
            message=storable(_message(error)),
            traceback=storable("".join(told.format())),
        )


class AttemptRecord(NamedTuple):
    """A row to be, but for its dates, which are the database's."""

    job_id: str
    attempt: int
    worker_id: str
    began: float  # time.monotonic()
    ended: float
    outcome: str
    failed: Failed | None = None
    result: str | None = None


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is not ours: how a handler was called is the same for all."""
    began = trace
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
        trace = trace.tb_next
    return trace or began


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 # the user's exception: the attempt is over all the same
        return f"<its __str__ raised {type(broken).__name__}>"


def storable(text: str, most: int = MOST_TEXT) -> str:
    """`text` as PostgreSQL can keep it, without NULs, and its middle left out if it is longer than `most` characters.

    The beginning says where it was called from, the end what went wrong; chains of exceptions repeat in the middle.
    """
    if len(text) > most:
        head = most // 4
        tail = most - head
        text = f"{text[:head]}\n… {len(text) - most:,} characters left out …\n{text[-tail:]}"
    return text.replace("\x00", "").encode(errors="replace").decode()


MAY_RECORD: LiteralString = "SELECT has_table_privilege(to_regclass('{job_attempt}'), 'INSERT')"
RECORD_ATTEMPT: LiteralString = """
INSERT INTO {job_attempt}
       (job_id, attempt, worker_id, started_at, finished_at, outcome, exception_class, message, traceback, result)
SELECT $1, $2, $3, clock.now - $4 * interval '1 second', clock.now - $5 * interval '1 second', $6, $7, $8, $9, $10
  FROM (SELECT COALESCE($11, statement_timestamp()) AS now) AS clock
"""
RECORD_TYPES = (
    *("uuid", "int4", "text", "float8", "float8"),
    *("text", "text", "text", "text", "text", "timestamptz"),
)


def may_record(claim: ClaimConnection, tables: Tables) -> bool:
    """Whether the table is there, and the role may insert; asked once a connection.

    A Clojure-made schema has no such table, and a job must not fail for want of a record.
    """
    return claim.is_true(for_tables(MAY_RECORD, tables))


def recording(claim: ClaimConnection, tables: Tables, record: AttemptRecord, now: datetime | None) -> str:
    """SQL that inserts the row, to be sent soon. `now` replaces the database's clock."""
    failed = record.failed or (None, None, None)
    ago = time.monotonic()
    began, ended = max(0.0, ago - record.began), max(0.0, ago - record.ended)
    values = (record.job_id, record.attempt, record.worker_id, began, ended, record.outcome)
    return claim.call(_record_attempt(tables), *values, *failed, record.result, now)


@functools.cache
def _record_attempt(tables: Tables) -> Statement:
    return Statement("proletarian_record_attempt", RECORD_TYPES, for_tables(RECORD_ATTEMPT, tables))


# -- Checkpoints: what an attempt has saved, in a row of its own that succeeds it -----------------------------------

SAVE_CHECKPOINT: LiteralString = """
WITH saved AS (
    UPDATE {job_attempt}
       SET result = %(data)s, finished_at = statement_timestamp(), worker_id = %(worker_id)s
     WHERE job_id = %(job_id)s AND attempt = %(attempt)s AND outcome = 'checkpoint'
 RETURNING 1
)
INSERT INTO {job_attempt} (job_id, attempt, worker_id, started_at, finished_at, outcome, result)
SELECT %(job_id)s, %(attempt)s, %(worker_id)s, statement_timestamp(), statement_timestamp(), 'checkpoint', %(data)s
 WHERE NOT EXISTS (SELECT FROM saved)
"""


def save_checkpoint(
    cursor: CursorWrapper, tables: Tables, job_id: str, *, attempt: int, worker_id: str, data: str
) -> None:
    """Keep `data`, encoded, in place of what the attempt has saved before."""
    values: dict[str, str | int] = {"job_id": job_id, "attempt": attempt, "worker_id": worker_id, "data": data}
    cursor.execute(for_tables(SAVE_CHECKPOINT, tables), values)


LOAD_CHECKPOINT: LiteralString = """
SELECT result FROM {job_attempt}
 WHERE job_id = %s AND outcome = 'checkpoint' AND result IS NOT NULL
 ORDER BY attempt_id DESC
 LIMIT 1
"""


def load_checkpoint(cursor: CursorWrapper, tables: Tables, job_id: str) -> str | None:
    """What the job's attempts have saved last, encoded; None if nothing, or if the job has succeeded since."""
    cursor.execute(for_tables(LOAD_CHECKPOINT, tables), [job_id])
    row = cursor.fetchone()
    return None if row is None else str(row[0])


# A job that runs again after its success begins from the beginning. Deleting takes a right that workers may not have.
FORGET_CHECKPOINTS: LiteralString = """
UPDATE {job_attempt} SET result = NULL WHERE job_id = $1 AND outcome = 'checkpoint'
"""


def forgetting_checkpoints(claim: ClaimConnection, tables: Tables, job_id: str) -> str:
    """SQL that empties the checkpoints of a job that has succeeded."""
    return claim.inline(Statement("", ("uuid",), for_tables(FORGET_CHECKPOINTS, tables)), job_id)
