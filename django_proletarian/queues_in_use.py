"""Which queues have jobs, by their table's index: for all who look at every queue."""

from __future__ import annotations

from typing import LiteralString

from django.db.backends.utils import CursorWrapper

from django_proletarian.tables import Tables, for_tables

MOST_QUEUES = 500  # that are told apart

# From each queue to the next by one look into the index, since DISTINCT would read all of it. The last row is NULL.
WITH_PRESENT: LiteralString = """
WITH RECURSIVE present AS (
    (SELECT queue FROM {job} ORDER BY queue LIMIT 1)
     UNION ALL
    SELECT (SELECT job.queue FROM {job} AS job WHERE job.queue > present.queue ORDER BY job.queue LIMIT 1)
      FROM present WHERE present.queue IS NOT NULL
)"""
QUEUES_IN_USE: LiteralString = f"{WITH_PRESENT} SELECT queue FROM present WHERE queue IS NOT NULL LIMIT %s"  # noqa: S608 # constants


def queues_in_use(cursor: CursorWrapper, tables: Tables) -> list[str]:
    """The queues that have jobs, as they are stored, in the order of the index."""
    cursor.execute(for_tables(QUEUES_IN_USE, tables), [MOST_QUEUES])
    return [queue for (queue,) in cursor.fetchall()]
