"""A database as a busy shop has it after two months: the rows among which the admin's pages are measured."""

from __future__ import annotations

from typing import LiteralString
from uuid import UUID

import psycopg

# Those with a handler here, by which a list can be filtered: a usual one, one that fails often, a rare one, and one of
# which there never was a job. Nine more have none.
KNOWN_TYPES = ("bench/type-0", "bench/type-3", "bench/type-11", "bench/type-none")
QUEUES = ("proletarian/default", "shop/reports", "shop/rare")
DAYS = 60

# One queue is rare too: its jobs are all old, or far off.
ARCHIVED_JOBS: LiteralString = """
INSERT INTO proletarian.archived_job
SELECT gen_random_uuid(),
       CASE WHEN number <= 100 THEN ':shop/rare' WHEN number %% 4 = 0 THEN ':shop/reports'
            ELSE ':proletarian/default' END,
       CASE WHEN number %% 100000 = 0 THEN ':bench/type-11' ELSE ':bench/type-' || number %% 11 END,
       '["^ ","~:email","person-' || number || '@example.com","~:id",' || number || ',"~:subject","Your order"]',
       1 + (number %% 50 = 0)::int, finished.at - interval '1 hour', finished.at - interval '2 seconds',
       CASE WHEN number %% 50 = 0 OR (number %% 11 = 3 AND number %% 5 = 0) THEN ':failure' ELSE ':success' END,
       finished.at
  FROM generate_series(1, %(rows)s) AS number,
       LATERAL (SELECT now() - (%(rows)s - number) * (interval '1 day' * %(days)s / %(rows)s) AS at) AS finished
"""
# Half of them are due, the others within the next two months; a tenth has failed before.
JOBS: LiteralString = """
INSERT INTO proletarian.job
SELECT gen_random_uuid(),
       CASE WHEN number > %(rows)s - 100 THEN ':shop/rare' WHEN number %% 4 = 0 THEN ':shop/reports'
            ELSE ':proletarian/default' END,
       CASE WHEN number %% 100000 = 0 THEN ':bench/type-11' ELSE ':bench/type-' || number %% 11 END,
       '["^ ","~:email","person-' || number || '@example.com","~:id",' || number || ',"~:subject","Your order"]',
       (number %% 10 = 0)::int, now() - interval '2 days',
       now() + CASE WHEN number * 2 <= %(rows)s THEN (number - %(rows)s / 2) * (interval '1 day' * 2 / %(rows)s)
                    ELSE (number - %(rows)s / 2) * (interval '1 day' * 2 * %(days)s / %(rows)s) END
  FROM generate_series(1, %(rows)s) AS number
"""
ATTEMPTS: LiteralString = """
INSERT INTO proletarian.job_attempt
    (job_id, attempt, worker_id, started_at, finished_at, outcome, exception_class, message, traceback)
SELECT job_id, attempt, 'shop-1', process_at - interval '3 seconds', process_at, outcome, 'shop.provider.ProviderBusy',
       'try again in 2 s', repeat('  File "shop/jobs.py", line 50, in take_payment\n', 20)
  FROM (SELECT job_id, process_at, 1, 'retry' FROM proletarian.job WHERE attempts = 1
         UNION ALL
        SELECT job_id, process_at, attempt, CASE WHEN attempt = attempts THEN 'failure' ELSE 'retry' END
          FROM proletarian.archived_job, LATERAL generate_series(1, attempts) AS attempt
         WHERE status = ':failure') AS tried (job_id, process_at, attempt, outcome)
"""
WORKERS: LiteralString = """
INSERT INTO proletarian.worker
    (process_id, worker_id, host, pid, queues, processes, threads, version, started_at, heartbeat_at, running,
     succeeded, failed)
SELECT gen_random_uuid(), 'shop-' || worker, 'host-' || worker, 1000 + worker, '["proletarian/default"]', 1, 8, '1.0',
       now() - interval '3 days', now() + interval '1 day',
       (SELECT COALESCE(jsonb_agg(jsonb_build_object('job_id', job_id, 'job_type', ltrim(job_type, ':'),
               'queue', ltrim(queue, ':'), 'attempt', attempts + 1, 'seconds', 12.5)), '[]')
          FROM (SELECT * FROM proletarian.job WHERE queue = ':proletarian/default'
                 ORDER BY process_at LIMIT 8 OFFSET worker * 8) AS taken),
       1234567, 890
  FROM generate_series(0, 19) AS worker
"""
# What drops each index, and what makes it again: that is faster once all rows are there.
INDEXES: LiteralString = """
SELECT CASE WHEN conname IS NULL THEN format('DROP INDEX %s', indexrelid::regclass)
            ELSE format('ALTER TABLE %s DROP CONSTRAINT %I', indrelid::regclass, conname) END,
       CASE WHEN conname IS NULL THEN pg_get_indexdef(indexrelid)
            ELSE format('ALTER TABLE %s ADD CONSTRAINT %I %s', indrelid::regclass, conname,
                        pg_get_constraintdef(pg_constraint.oid)) END
  FROM pg_index LEFT JOIN pg_constraint ON conindid = indexrelid
 WHERE indrelid IN ('proletarian.job'::regclass, 'proletarian.archived_job'::regclass,
                    'proletarian.job_attempt'::regclass)
"""


def fill(url: str, *, archived_jobs: int, jobs: int, analyze: bool) -> None:
    """Fill the empty tables of the database at `url`."""
    with psycopg.connect(url, autocommit=True) as connection:
        indexes = connection.execute(INDEXES).fetchall()
        for drop, _ in indexes:
            connection.execute(drop.encode())
        connection.execute("SET maintenance_work_mem = '512MB'")
        connection.execute(ARCHIVED_JOBS, {"rows": archived_jobs, "days": DAYS})
        connection.execute(JOBS, {"rows": jobs, "days": DAYS})
        connection.execute(ATTEMPTS)
        for _, create in indexes:
            connection.execute(create.encode())
        connection.execute(WORKERS)
        if analyze:
            # As autovacuum does in time.
            connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def lock_some(connection: psycopg.Connection) -> None:
    """Take jobs as workers do, until the transaction of `connection` ends."""
    connection.execute(
        "SELECT FROM proletarian.job WHERE queue = ':shop/reports' ORDER BY process_at LIMIT 20 FOR UPDATE"
    )


def ids(url: str) -> dict[str, UUID]:
    """A job for each kind of details page."""
    kinds: dict[str, LiteralString] = {
        "job/due": "job WHERE attempts = 0 AND process_at < now() ORDER BY process_at DESC",
        "job/retrying": "job WHERE attempts = 1 AND process_at > now() ORDER BY process_at",
        "job/running": "job WHERE queue = ':proletarian/default' ORDER BY process_at",
        "archivedjob/success": "archived_job WHERE status = ':success'",
        "archivedjob/failure": "archived_job WHERE status = ':failure' AND attempts = 2",
    }
    found = {}
    with psycopg.connect(url) as connection:
        for kind, those in kinds.items():
            row = connection.execute(f"SELECT job_id FROM proletarian.{those} LIMIT 1".encode()).fetchone()
            assert row is not None, kind
            found[kind] = row[0]
    return found
