"""Finding jobs for a person who looks: every look goes by an index and reads a bounded number of rows.

Called by the admin. What no index serves, such as a job type, is looked for among a window of rows that one does serve,
and the answer tells whether there were more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from django_proletarian.indexes import FAILURES, TRIED_BEFORE
from django_proletarian.tables import Tables, for_tables

MOST_SAMPLED = 500  # jobs, for the types that there are
MOST_LOOKED_AT = 50_000  # rows, for a filter that no index serves
LEAST_LOOKED_AT = 100  # rows of each queue, however many queues there are
MOST_SEARCHED = 10_000  # rows, for a text in payloads, which are longer than all else
MOST_OF_A_PAYLOAD = 10_000  # characters that are searched
MOST_FOUND = 10_000  # jobs

TYPES_AHEAD: LiteralString = """
SELECT DISTINCT ahead.job_type
  FROM unnest(%s::text[]) AS asked (queue)
 CROSS JOIN LATERAL (
    SELECT job_type FROM {job} AS job WHERE job.queue = asked.queue ORDER BY process_at LIMIT %s
 ) AS ahead
"""
TYPES_LATELY: LiteralString = """
SELECT DISTINCT job_type
  FROM (SELECT job_type FROM {archived_job} ORDER BY finished_at DESC LIMIT %s) AS lately
"""


def types_ahead(cursor: CursorWrapper, tables: Tables, queues: Sequence[str]) -> list[str]:
    """The types of the jobs that run next in each queue, all as they are stored."""
    most = max(MOST_SAMPLED // max(1, len(queues)), 10)
    cursor.execute(for_tables(TYPES_AHEAD, tables), [list(queues), most])
    return [job_type for (job_type,) in cursor.fetchall()]


def types_lately(cursor: CursorWrapper, tables: Tables) -> list[str]:
    """The types of the jobs that finished last, as they are stored."""
    cursor.execute(for_tables(TYPES_LATELY, tables), [MOST_SAMPLED])
    return [job_type for (job_type,) in cursor.fetchall()]


def has_retrying_index(cursor: CursorWrapper, tables: Tables) -> bool:
    """Whether jobs that were tried can be found without reading those that were not."""
    cursor.execute(TRIED_BEFORE.is_there(tables))
    return bool(cursor.rowcount)


def has_failure_index(cursor: CursorWrapper, tables: Tables) -> bool:
    """Whether archived failures can be found without reading the successes."""
    cursor.execute(FAILURES.is_there(tables))
    return bool(cursor.rowcount)


# -- Jobs in the queue -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What jobs in the queue are looked for; None for any."""

    queues: Sequence[str]  # as stored
    job_type: str | None = None  # as stored
    text: str | None = None  # somewhere in the payload, in large or small letters
    is_due: bool | None = None
    was_tried: bool = False
    since: datetime | None = None  # process_at
    before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    job_ids: list[UUID]
    looked_at: int
    is_complete: bool  # there were no more rows to look at


# The rows are limited before they are compared, so the comparison can't lead the server to look at more of them.
FIND_JOBS: LiteralString = """
SELECT count(*), array_agg(job_id) FILTER (
           WHERE (%(job_type)s::text IS NULL OR job_type = %(job_type)s)
             AND (NOT %(was_tried)s OR attempts > 0)
             AND (%(pattern)s::text IS NULL OR left(payload, %(most_of_a_payload)s) ILIKE %(pattern)s))
  FROM unnest(%(queues)s::text[]) AS asked (queue)
 CROSS JOIN LATERAL (
    SELECT job_id, job_type, attempts, payload
      FROM {job} AS job
     WHERE job.queue = asked.queue
       AND (%(since)s::timestamptz IS NULL OR process_at >= %(since)s)
       AND (%(before)s::timestamptz IS NULL OR process_at < %(before)s)
       AND (%(is_due)s::boolean IS NOT TRUE OR process_at <= statement_timestamp())
       AND (%(is_due)s::boolean IS NOT FALSE OR process_at > statement_timestamp())
       AND (NOT %(tried_by_index)s OR attempts > 0)
     ORDER BY process_at
     LIMIT %(limit)s
 ) AS looked_at
 GROUP BY asked.queue
"""


def find_jobs(cursor: CursorWrapper, tables: Tables, wanted: Wanted) -> Found:
    """The jobs that are wanted, among those of each queue that are due first."""
    most = MOST_SEARCHED if wanted.text else MOST_LOOKED_AT
    limit = max(most // max(1, len(wanted.queues)), LEAST_LOOKED_AT)
    values = {
        "queues": list(wanted.queues),
        "job_type": wanted.job_type,
        "pattern": None if wanted.text is None else like(wanted.text),
        "most_of_a_payload": MOST_OF_A_PAYLOAD,
        "is_due": wanted.is_due,
        "was_tried": wanted.was_tried,
        "tried_by_index": wanted.was_tried and has_retrying_index(cursor, tables),
        "since": wanted.since,
        "before": wanted.before,
        "limit": limit,
    }
    cursor.execute(for_tables(FIND_JOBS, tables), values)
    counts: list[int] = []
    found: list[UUID] = []
    for count, job_ids in cursor.fetchall():
        counts.append(count)
        found += job_ids or []
    return Found(
        job_ids=found[:MOST_FOUND],
        looked_at=sum(counts),
        is_complete=len(found) <= MOST_FOUND and all(count < limit for count in counts),
    )


def like(text: str) -> str:
    """A pattern for ILIKE that finds `text` anywhere."""
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"


# -- Archived jobs ---------------------------------------------------------------------------------------------------

WINDOW_OF_ARCHIVE: LiteralString = """
SELECT finished_at FROM {archived_job}
 WHERE (%(since)s::timestamptz IS NULL OR finished_at >= %(since)s)
   AND (%(before)s::timestamptz IS NULL OR finished_at < %(before)s)
   AND (NOT %(failures)s OR status = ':failure')
 ORDER BY finished_at DESC
OFFSET %(most)s LIMIT 1
"""


def end_of_window(
    cursor: CursorWrapper, tables: Tables, *, since: datetime | None, before: datetime | None, failures: bool, most: int
) -> datetime | None:
    """How far back the `most` newest archived jobs between two dates reach; None if there are no more than that.

    With `failures` only failures count, for which there must be an index.
    """
    values = {"since": since, "before": before, "failures": failures, "most": most}
    cursor.execute(for_tables(WINDOW_OF_ARCHIVE, tables), values)
    row = cursor.fetchone()
    return None if row is None else row[0]


# -- Dates -----------------------------------------------------------------------------------------------------------

# One look into the index for each span (and each queue), whatever lies in it.
JOBS_IN_SPANS: LiteralString = """
SELECT number FROM unnest(%(since)s::timestamptz[], %(before)s::timestamptz[])
                   WITH ORDINALITY AS span (since, before, number)
 WHERE EXISTS (SELECT FROM {job} WHERE queue = ANY(%(queues)s)
                  AND process_at >= span.since AND process_at < span.before)
"""
ARCHIVED_JOBS_IN_SPANS: LiteralString = """
SELECT number FROM unnest(%(since)s::timestamptz[], %(before)s::timestamptz[])
                   WITH ORDINALITY AS span (since, before, number)
 WHERE EXISTS (SELECT FROM {archived_job} WHERE finished_at >= span.since AND finished_at < span.before)
"""

Span = tuple[datetime, datetime]  # from the first up to, but not including, the second


def spans_with_jobs(cursor: CursorWrapper, tables: Tables, spans: Sequence[Span], queues: Iterable[str]) -> list[Span]:
    """Those of `spans` in which a job of `queues`, as they are stored, is due."""
    return _present(cursor, for_tables(JOBS_IN_SPANS, tables), spans, list(queues))


def spans_with_archived_jobs(cursor: CursorWrapper, tables: Tables, spans: Sequence[Span]) -> list[Span]:
    """Those of `spans` in which a job finished."""
    return _present(cursor, for_tables(ARCHIVED_JOBS_IN_SPANS, tables), spans, [])


def _present(cursor: CursorWrapper, statement: str, spans: Sequence[Span], queues: list[str]) -> list[Span]:
    since, before = [since for since, _ in spans], [before for _, before in spans]
    cursor.execute(statement, {"since": since, "before": before, "queues": queues})
    return [spans[number - 1] for (number,) in sorted(cursor.fetchall())]
