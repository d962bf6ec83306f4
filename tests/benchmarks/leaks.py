"""`python -m tests.benchmarks.leaks`: what a worker process holds after 10,000 jobs, and after 100,000 (five minutes).

Plain, atomic and async handlers in turn, each of which writes through the ORM. Memory may grow by a tenth; open file
descriptors and connections may not change at all. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg

from tests.conftest import eventually
from tests.live.processes import WorkerProcess, migrate
from tests.postgres import Postgres

AT_ONCE = 1000
JOB_TYPES = (":tests/append", ":tests/append-atomic", ":tests/append-async")
INSERT = """
INSERT INTO proletarian.job
SELECT gen_random_uuid(), ':proletarian/default', (%s::text[])[1 + number %% 3], '1', 0, now(), now()
  FROM generate_series(1, %s) AS number
"""
FINISHED = "SELECT count(*) FROM proletarian.archived_job WHERE status = ':success' AND attempts = 1"
CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a worker process holds when it has run `jobs` and has nothing to do."""

    jobs: int
    memory: int  # KiB, resident
    descriptors: int
    threads: int  # asyncio.to_thread makes some more now and then, up to a limit
    connections: int  # that the server has, of anybody but the one who asks


def holdings(url: str, pid: int, upto: Sequence[int]) -> Iterator[Held]:
    """Have the only worker of the database at `url` run jobs, and look at it after each number in `upto`."""
    done = 0
    # One connection for all questions: the server counts each until it has noticed that it was closed.
    with psycopg.connect(url, autocommit=True) as connection:

        def number_of(query: LiteralString) -> int:
            [(number,)] = connection.execute(query)
            return int(number)

        for jobs in upto:
            while done < jobs:
                number = min(AT_ONCE, jobs - done)
                connection.execute(INSERT, (list(JOB_TYPES), number))
                done += number
                eventually(lambda: number_of(FINISHED) == done, seconds=120)  # noqa: B023 # called before it changes
            process = Path("/proc", str(pid))
            status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
            yield Held(
                jobs=jobs,
                memory=int(status["VmRSS"].split()[0]),
                # The heartbeat's file is open for a moment now and then, and so may be what a handler has just closed.
                descriptors=min(len(os.listdir(process / "fd")) for _ in range(100)),
                threads=int(status["Threads"]),
                connections=min(number_of(CONNECTIONS) for _ in range(100)),
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.leaks", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, metavar="N", help="Default: 100000.")
    parser.add_argument("--threads", type=int, default=4, metavar="N", help="Default: 4.")
    options = parser.parse_args()
    tenth = options.jobs // 10
    found: list[Held] = []
    with Postgres(synchronous_commit="off") as server, tempfile.TemporaryDirectory() as directory:
        migrate(server.url)
        worker = WorkerProcess(
            Path(directory, "log"),
            server.url,
            *("--threads", str(options.threads), "--no-supervisor", "--verbosity", "0"),
            settings="tests.live.settings",
        )
        try:
            for held in holdings(server.url, worker.pid, range(tenth, options.jobs + 1, tenth)):
                print(held, flush=True)
                found.append(held)
        finally:
            worker.close()
    first, last = found[0], found[-1]
    growth = last.memory / first.memory - 1
    print(f"Memory grew by {growth:.1%}.")
    same = (first.descriptors, first.connections) == (last.descriptors, last.connections)
    sys.exit(0 if growth < 0.1 and same else "It leaks.")


if __name__ == "__main__":
    main()
