"""A worker process's row in the table of workers: which jobs it runs now, for whoever looks from elsewhere.

Written by the process itself out of the slots of its threads, every few seconds and not for each job: by the thread
that polls, in the message that it sends anyway, or, while all of them run jobs, by a thread and a connection beside.
The row has an id of its own, chosen when the process started, so that two of one name are two. The database's clock
dates it, and jobs are told by the seconds that they have run for, so that no host's clock matters.
"""

from __future__ import annotations

import functools
import json
import math
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString
from uuid import UUID, uuid4

import psycopg
from django.db import Error as DjangoDatabaseError

from django_proletarian import names
from django_proletarian.connection import PrivateConnection, Statement
from django_proletarian.progress import Progress
from django_proletarian.slots import JobInSlot, Slots
from django_proletarian.tables import Tables, for_tables
from django_proletarian.version import __version__

INTERVAL = 5.0  # seconds between heartbeats
PROGRESS_INTERVAL = 1.0  # seconds between two that tell of progress
DEAD_AFTER = 20.0  # seconds without one; a process that stands still so long is as good as dead
REMOVED_AFTER = 86400.0  # seconds; until then a dead worker is shown as such
LATE = 1.0  # seconds by which the polling threads may be late before the thread beside writes instead of them
GIVE_UP_AFTER = 2.0  # seconds in which the row is removed at the end, or left behind as that of a dead worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which of a worker's processes this is. A program that runs a queue worker itself is the only one."""

    process_id: UUID = field(default_factory=uuid4)
    processes: int = 1
    predecessors: tuple[UUID, ...] = ()  # dead ones in whose place it started; their rows are removed


# An upsert every time, since anybody may have removed the row of a process that stood still for long.
UPSERT: LiteralString = """
WITH removed AS (
    DELETE FROM {worker}
     WHERE process_id = ANY($13) OR heartbeat_at < statement_timestamp() - {{removed_after}} * interval '1 second'
)
INSERT INTO {worker} AS own
       (process_id, worker_id, host, pid, queues, processes, threads, version, started_at, heartbeat_at,
        running, succeeded, failed)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, statement_timestamp() - $9 * interval '1 second', statement_timestamp(),
        $10, $11, $12)
    ON CONFLICT (process_id) DO UPDATE
   SET heartbeat_at = excluded.heartbeat_at, running = excluded.running,
       succeeded = excluded.succeeded, failed = excluded.failed
"""
TYPES = (
    *("uuid", "text", "text", "int4", "jsonb", "int4", "int4", "text", "float8"),
    *("jsonb", "int8", "int8", "uuid[]"),
)
DELETE: LiteralString = "DELETE FROM {worker} WHERE process_id = $1"
MAY_WRITE: LiteralString = """
SELECT has_table_privilege(to_regclass('{worker}'), 'INSERT') AND has_table_privilege(to_regclass('{worker}'), 'UPDATE')
   AND has_table_privilege(to_regclass('{worker}'), 'DELETE')
"""


class WorkerRow:
    """The row of this process. Polling threads write it as they poll; `start` and `stop` belong to the queue worker."""

    def __init__(
        self, identity: Identity, slots: Slots, *, worker_id: str, database: str, tables: Tables, queues: Sequence[str]
    ) -> None:
        self._identity = identity
        self._slots = slots
        self._worker_id = worker_id
        self._tables = tables
        self._queues = json.dumps([names.shown(queue) for queue in queues])
        self._host = socket.gethostname()
        self._started_at = time.monotonic()
        # Written by whichever thread has written the row; two that do so at once do no harm.
        self._due_at = self._started_at  # time.monotonic() of the next heartbeat
        self._connection = PrivateConnection(database, f"{worker_id}-heartbeat")  # the thread's
        self._stop = threading.Event()
        self._written_at = -math.inf  # time.monotonic()
        self._news = threading.Event()  # some job has told its progress, or a stop was asked
        slots.on_progress = self._news.set
        self._thread = threading.Thread(target=self._run, name=f"{worker_id}-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to see to it that the row is written while nobody polls."""
        self._thread.start()

    def stop(self) -> None:
        """Remove the row, if the database can be reached soon."""
        self._stop.set()
        self._news.set()
        self._thread.join(GIVE_UP_AFTER)

    def if_due(self, connection: PrivateConnection) -> list[str]:
        """SQL that writes the row, if it is time to; for the next message of a thread that is not in a transaction."""
        if time.monotonic() < self._due_at or not connection.is_true(for_tables(MAY_WRITE, self._tables)):
            return []
        self._due_at = time.monotonic() + INTERVAL
        return [self._upsert(connection)]

    def at_once(self, connection: PrivateConnection) -> list[str]:
        """SQL that writes the row whether it is time to or not; for the next message, within a transaction or not."""
        if not connection.is_true(for_tables(MAY_WRITE, self._tables)):
            return []
        return [self._upsert(connection)]

    def _upsert(self, connection: PrivateConnection) -> str:
        own = self._identity
        self._written_at = time.monotonic()
        return connection.inline(
            _upsert(self._tables),
            *(str(own.process_id), self._worker_id, self._host, os.getpid(), self._queues),
            *(own.processes, self._slots.threads, __version__, time.monotonic() - self._started_at),
            *(running(self._slots), *self._slots.counts, [str(each) for each in own.predecessors]),
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            has_news = self._news.wait(max(LATE, self._due_at + LATE - time.monotonic()))
            if has_news:
                # Not more than once a second, however often handlers tell of their progress.
                self._stop.wait(max(0.0, self._written_at + PROGRESS_INTERVAL - time.monotonic()))
                if self._stop.is_set():
                    break
                self._news.clear()
            elif time.monotonic() < self._due_at + LATE:
                self._connection.close()  # it is needed only while all threads are busy
                continue
            try:
                write = self.at_once if has_news else self.if_due
                self._connection.send(*write(self._connection))
            except (psycopg.Error, DjangoDatabaseError):
                # The polling threads tell of an outage; until it is over the row is out of date, and that is true.
                self._connection.close()
        try:
            if self._connection.is_true(for_tables(MAY_WRITE, self._tables)):
                delete = Statement("", ("uuid",), for_tables(DELETE, self._tables))
                self._connection.send(self._connection.inline(delete, str(self._identity.process_id)))
        except (psycopg.Error, DjangoDatabaseError):
            pass  # it will be shown as a dead worker's, and be removed in a day
        finally:
            self._connection.close()


@functools.cache
def _upsert(tables: Tables) -> Statement:
    return Statement("", TYPES, for_tables(UPSERT, tables).format(removed_after=REMOVED_AFTER))


def running(slots: Slots) -> str:
    """The jobs that run now, as the row has them."""
    now = time.time()
    return json.dumps([_running(job, now, slots.progress.get(str(job.job_id))) for job in slots.running])


def _running(job: JobInSlot, now: float, progress: Progress | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "job_id": str(job.job_id),
        "job_type": names.shown(names.from_stored(job.job_type)),
        "queue": names.shown(names.from_stored(job.queue)),
        "attempt": job.attempts + 1,
        "seconds": round(max(0.0, now - job.since), 1),
    }
    if job.leased_from is not None:
        told["leased"] = True
    if progress is not None:
        told["progress"] = progress.as_json()
    return told
