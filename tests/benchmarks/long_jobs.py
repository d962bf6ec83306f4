"""`python -m tests.benchmarks.long_jobs`: what long jobs do to everybody else, with their rows locked and with leases.

Ten jobs run for as long as it takes, a minute at the least, and 50,000 short ones are drained meanwhile by the same
worker. Told are the oldest transaction that the server had open, looked at all the time, and of the dead rows that the
short jobs left in the job table, how many a VACUUM could not remove while the long ones ran. Two minutes and a half.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.conftest import eventually
from tests.live.processes import WorkerProcess, insert_jobs, migrate, sql
from tests.postgres import Postgres

LOOK_EVERY = 0.02  # seconds
PATIENCE = 600  # seconds that the short jobs may take
FILL = """
INSERT INTO proletarian.job
SELECT gen_random_uuid(), ':proletarian/default', ':tests/at-once', '1', 0, now(),
       now() - interval '1 second' + number * interval '1 microsecond'
  FROM generate_series(1, %s) AS number
"""
OLDEST = """
SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()
"""
DRAINED = "SELECT count(*) FROM proletarian.archived_job WHERE job_type = ':tests/at-once'"
SIZE = "SELECT pg_table_size('proletarian.job') / 1024, pg_indexes_size('proletarian.job') / 1024"
# What VACUUM has left is what the statistics say until something changes.
DEAD = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'proletarian.job'::regclass"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one run showed."""

    drained: float  # short jobs a second
    oldest: float  # seconds, of any transaction
    dead: int  # rows that VACUUM had to leave
    table: int  # KiB, after VACUUM
    indexes: int

    def __str__(self) -> str:
        return (
            f"{self.drained:7,.0f} short jobs/s, oldest transaction {self.oldest:7.3f} s, dead rows left by VACUUM "
            f"{self.dead:6,}, table {self.table:6,} KiB, indexes {self.indexes:6,} KiB"
        )


class OldestTransaction(threading.Thread):
    """Looks for it until it is stopped."""

    def __init__(self, url: str) -> None:
        super().__init__(name="oldest-transaction", daemon=True)
        self.seconds = 0.0
        self._url = url
        self._stop_asked = threading.Event()

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stop_asked.wait(LOOK_EVERY):
                [[seconds]] = connection.execute(OLDEST).fetchall()
                self.seconds = max(self.seconds, seconds or 0.0)

    def stop(self) -> float:
        """End; return the age, in seconds, of the oldest that was seen."""
        self._stop_asked.set()
        self.join()
        return self.seconds


def measure(url: str, directory: Path, *, leased: bool, long: int, short: int, seconds: float) -> Found:
    """Run the jobs on the server at `url`, in empty tables; `long` of them for `seconds` at the least."""
    sql(url, "TRUNCATE proletarian.job, proletarian.archived_job")
    job_type = "tests/long-leased" if leased else "tests/long"
    go = directory / f"go-{job_type.rpartition('/')[2]}"
    started = [directory / f"{go.name}-{number}" for number in range(long)]
    insert_jobs(url, job_type, [f'["^ ","~:started","{file}","~:go","{go}"]' for file in started])
    worker = WorkerProcess(
        directory / f"{go.name}.log",
        url,
        *("--threads", str(long + 2), "--verbosity", "0"),
        settings="tests.live.settings",
    )
    try:
        eventually(lambda: all(file.exists() for file in started), PATIENCE)
        sql(url, FILL, (short,))
        began = time.monotonic()
        watcher = OldestTransaction(url)
        watcher.start()
        eventually(lambda: sql(url, DRAINED)[0][0] == short, PATIENCE)
        took = time.monotonic() - began
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        oldest = watcher.stop()
        sql(url, "VACUUM proletarian.job")
        [[dead]] = sql(url, DEAD)
        [[table, indexes]] = sql(url, SIZE)
        go.touch()
        eventually(lambda: sql(url, "SELECT count(*) FROM proletarian.job") == [(0,)], PATIENCE)
    finally:
        worker.close()
    return Found(drained=short / took, oldest=oldest, dead=dead, table=table, indexes=indexes)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.long_jobs", description=__doc__)
    add = parser.add_argument
    add("--long", type=int, default=10, metavar="N", help="Default: 10.")
    add("--short", type=int, default=50_000, metavar="N", help="Default: 50000.")
    add("--seconds", type=float, default=60, metavar="S", help="For how long they run at the least. Default: 60.")
    options = parser.parse_args()
    for leased in (False, True):
        with Postgres(fsync="on", autovacuum="on") as server, tempfile.TemporaryDirectory() as directory:
            migrate(server.url)
            found = measure(
                server.url,
                Path(directory),
                leased=leased,
                long=options.long,
                short=options.short,
                seconds=options.seconds,
            )
        print(f"{'leased' if leased else 'locked'}: {found}", flush=True)


if __name__ == "__main__":
    main()
