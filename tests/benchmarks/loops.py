"""Loops in this process: enqueueing, and bare psycopg doing what it comes down to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import LiteralString
from unittest import mock
from uuid import uuid4

import psycopg
from django.db import connections

from django_proletarian import enqueue, enqueue_many, inserts
from django_proletarian.transit import encode
from tests.benchmarks.server import NOTHING, PAYLOAD, QUEUE, STATUS, STORED_PAYLOAD, Server

CHUNKS = 10


def in_chunks(count: int, loops: dict[str, Callable[[int], object]]) -> dict[str, float]:
    """Run the loops by turns, `count` times each in all; return how many times a second."""
    seconds = dict.fromkeys(loops, 0.0)
    for chunk in range(CHUNKS):
        for name, loop in sorted(loops.items(), reverse=bool(chunk % 2)):
            began = time.perf_counter()
            loop(count // CHUNKS)
            seconds[name] += time.perf_counter() - began
    return {name: count // CHUNKS * CHUNKS / seconds[name] for name in loops}


# -- Enqueue ---------------------------------------------------------------------------------------------------------

INSERT: LiteralString = """
INSERT INTO proletarian.job (job_id, queue, job_type, payload, attempts, enqueued_at, process_at)
VALUES (%s, %s, %s, %s, 0, %s, %s)
"""


def enqueue_each(count: int) -> None:
    for _ in range(count):
        enqueue("bench/nothing", PAYLOAD)


@contextmanager
def bare_inserts(server: Server) -> Iterator[Callable[[int], None]]:
    """A loop that inserts with psycopg alone, each row in its own transaction, the payload serialised."""
    with psycopg.connect(server.url, autocommit=True) as connection, connection.cursor() as cursor:

        def insert_each(count: int) -> None:
            for _ in range(count):
                now = datetime.now(UTC)
                cursor.execute(INSERT, (uuid4(), QUEUE, NOTHING, encode(PAYLOAD), now, now))

        yield insert_each


def on_threads(count: int, threads: int = 8) -> None:
    """Enqueue `count` jobs in all."""

    def work() -> None:
        try:
            enqueue_each(count // threads)
        finally:
            connections.close_all()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def enqueue_notifies() -> bool:
    """Whether enqueue has any code that wakes workers."""
    return "notify" in inserts.INSERT_JOB.lower()


# `enqueue`'s own statement but for the notification; the parameters are the same.
INSERT_WITHOUT_NOTIFY = (
    inserts.INSERT_DUE_JOB.partition("RETURNING")[0] + "RETURNING pg_backend_pid(), CAST(%(key)s AS bigint)"
)


def on_threads_without_notify(count: int) -> None:
    """`on_threads`, with a statement that wakes nobody."""
    with mock.patch.object(inserts, "INSERT_DUE_JOB", INSERT_WITHOUT_NOTIFY):
        on_threads(count)


def bulk(jobs: int) -> float:
    """Enqueue `jobs` at once; return how many a second, serialising included."""
    new = [("bench/nothing", PAYLOAD)] * jobs
    began = time.perf_counter()
    enqueue_many(new)
    return jobs / (time.perf_counter() - began)


def bare_copy(server: Server, jobs: int) -> float:
    """COPY rows that are ready; return how many a second."""
    now = datetime.now(UTC)
    rows = [(uuid4(), QUEUE, NOTHING, STORED_PAYLOAD, 0, now, now) for _ in range(jobs)]
    with psycopg.connect(server.url) as connection, connection.cursor() as cursor:
        began = time.perf_counter()
        with cursor.copy("COPY proletarian.job FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        connection.commit()
        return jobs / (time.perf_counter() - began)


# -- Run jobs --------------------------------------------------------------------------------------------------------

CLAIM: LiteralString = """
SELECT job_id, queue, job_type, payload, attempts, enqueued_at, process_at FROM proletarian.job
 WHERE queue = %s AND process_at <= now() ORDER BY process_at LIMIT 1 FOR UPDATE SKIP LOCKED
"""
INSERT_ROW: LiteralString = "INSERT INTO project_row (text) VALUES (%s)"
ARCHIVE: LiteralString = "INSERT INTO proletarian.archived_job VALUES (%s, %s, %s, %s, %s, %s, %s, %s, now())"
DELETE: LiteralString = "DELETE FROM proletarian.job WHERE job_id = %s"


def six_statements(server: Server, jobs: int) -> float:
    """Claim a job, insert one row, archive and delete the job, each in a transaction; return jobs a second."""
    with psycopg.connect(server.url, autocommit=True, prepare_threshold=0) as connection:
        cursor = connection.cursor()
        began = time.perf_counter()
        for _ in range(jobs):
            cursor.execute("BEGIN")
            row = cursor.execute(CLAIM, (QUEUE,)).fetchone()
            assert row is not None
            job_id, queue, job_type, payload, attempts, enqueued_at, process_at = row
            cursor.execute(INSERT_ROW, ("one row",))
            cursor.execute(ARCHIVE, (job_id, queue, job_type, payload, attempts + 1, enqueued_at, process_at, STATUS))
            cursor.execute(DELETE, (job_id,))
            cursor.execute("COMMIT")
        return jobs / (time.perf_counter() - began)
