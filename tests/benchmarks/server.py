"""The benchmark's own PostgreSQL server, which loses nothing, and the rows that it is filled with.

Every measurement begins with `fill` or `empty`: tables and statistics are new, and none pays for what was left before.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from tests.postgres import Postgres

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "512MB",
    # No checkpoint in the middle of a measurement.
    "checkpoint_timeout": "30min",
    "max_wal_size": "4GB",
}

# As they are stored; the payload is about 100 bytes of Transit.
QUEUE = ":proletarian/default"
STATUS = ":success"
NOTHING, INSERT_ROW = ":bench/nothing", ":bench/insert-row"
PAYLOAD = {"email": "someone@example.com", "id": 123456789, "subject": "Your order has been sent today"}
STORED_PAYLOAD = '["^ ","~:email","someone@example.com","~:id",123456789,"~:subject","Your order has been sent today"]'

FILL: LiteralString = """
INSERT INTO proletarian.job (job_id, queue, job_type, payload, attempts, enqueued_at, process_at)
SELECT gen_random_uuid(), %s, %s, %s, 0, first.at, first.at + number * interval '1 microsecond'
  FROM generate_series(1, %s) AS number,
       (SELECT statement_timestamp() + %s * interval '1 second' AS at) AS first
"""


class Server:
    """A server whose data is in `directory`, which should be on the disk that is to be measured."""

    def __init__(self, directory: Path | None, synchronous_commit: str) -> None:
        if directory is not None:
            tempfile.tempdir = str(directory)
        self._postgres = Postgres(**SETTINGS, synchronous_commit=synchronous_commit)
        self.url = self._postgres.url
        self.log = self._postgres.directory / "log"
        os.environ["DATABASE_URL"] = self.url  # for this process's Django, and for worker processes

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._postgres.close()

    def sql(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, outside a transaction; return its rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def run(self, script: str) -> None:
        """Run statements without values."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(script.encode())

    def fill(self, jobs: int, job_type: str = NOTHING, *, scheduled: int = 0, scheduled_queue: str = QUEUE) -> None:
        """Empty all tables, then put in `jobs` that became due a minute ago, and others that will be due tomorrow."""
        self.sql("TRUNCATE proletarian.job, proletarian.archived_job, project_row")
        # Before the rows come, since the first change to a page after a checkpoint writes all of it to the log.
        self.sql("CHECKPOINT")
        self.sql(FILL, QUEUE, job_type, STORED_PAYLOAD, jobs, -60)
        self.sql(FILL, scheduled_queue, job_type, STORED_PAYLOAD, scheduled, 24 * 60 * 60)
        self.sql("VACUUM ANALYZE proletarian.job")

    def empty(self) -> None:
        """Empty all tables."""
        self.fill(0)

    def log_messages(self, on: bool) -> None:
        """Have the server log every message with SQL in it, or none."""
        self.sql("ALTER SYSTEM SET log_statement = 'all'" if on else "ALTER SYSTEM RESET log_statement")
        self.sql("SELECT pg_reload_conf()")
