"""Which workers are alive, as the server knows it: each of their claim connections holds a lock that ends with it.

The lock is a shared advisory one, of the session, with two numbers: one for all workers on the same tables, and one
that a worker chose by chance when it was made. So a worker that was killed is gone at that moment, two workers of one
name are two, and nothing is written. Not seen are the original's workers, workers behind a pooler that keeps no
sessions, and those that have not polled yet.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from django.db.backends.utils import CursorWrapper

from django_proletarian.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """A worker that is connected now."""

    worker_id: str
    connections: int  # of its threads, those that have polled
    running: int | None  # of those, how many hold a job now; None if the role may not know, as the next
    connected_at: datetime | None  # the first of them
    host: str | None  # None on a Unix-domain socket too


def session_lock(tables: Tables) -> str:
    """SQL for the claim connections of one worker to run when they are opened. It never waits."""
    return f"SELECT pg_try_advisory_lock_shared({_signed(_all_workers(tables))}, {_signed(secrets.randbits(32))})"


# The number behind the last dash of a connection's name is its thread's. A claim's transaction is open as long as its
# job runs, and no longer; while an atomic handler uses it, it is active, in a transaction that began before.
LIVE_WORKERS = r"""
SELECT min(regexp_replace(application_name, '-\d+$', '')), count(*),
       CASE WHEN count(state) = count(*) THEN count(*) FILTER (
           WHERE state LIKE 'idle in transaction%%' OR (state = 'active' AND xact_start < query_start)) END,
       min(backend_start), min(host(client_addr))
  FROM pg_locks JOIN pg_stat_activity USING (pid)
 WHERE locktype = 'advisory' AND objsubid = 2 AND classid = %s::oid
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
 GROUP BY objid
 ORDER BY 1, min(backend_start), objid
"""


def live_workers(cursor: CursorWrapper, tables: Tables) -> list[LiveWorker]:
    """The workers that are connected now, in the order of their names."""
    cursor.execute(LIVE_WORKERS, [_all_workers(tables)])
    return [
        LiveWorker(
            worker_id=worker_id or "?", connections=connections, running=running, connected_at=connected_at, host=host
        )
        for worker_id, connections, running, connected_at, host in cursor.fetchall()
    ]


def _all_workers(tables: Tables) -> int:
    digest = hashlib.blake2b(f"workers {tables.job}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def _signed(number: int) -> int:
    """What pg_locks shows as `number`, as the functions take it."""
    return number - 2**32 if number >= 2**31 else number
