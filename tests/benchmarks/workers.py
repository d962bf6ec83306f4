"""Real worker processes, and what the rows that they leave say about their speed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import LiteralString

import psycopg
from django.core.management import load_command_class

from django_proletarian import enqueue
from tests.benchmarks.project.jobs import TOLD
from tests.benchmarks.server import Server

ROOT = Path(__file__).parents[2]
PATIENCE = 60  # seconds that a worker may take to start, or an idle one to run a job


def command_knows(option: str) -> bool:
    """Whether proletarian_worker has the option."""
    parser = load_command_class("django_proletarian", "proletarian_worker").create_parser("", "proletarian_worker")
    return option in parser.format_help()


class WorkerProcess:
    """`proletarian_worker` with `arguments`, as anyone would start it; killed at the end of the block."""

    def __init__(self, worker_id: str, *arguments: str) -> None:
        self.worker_id = worker_id
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 # closed in __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", "django", "proletarian_worker", "--worker-id", worker_id, *arguments],
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.benchmarks.project.settings"},
            stdout=self._output,
            stderr=self._output,
        )

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()

    def check(self) -> None:
        """Raise if the process has ended badly, with what it printed."""
        if self._process.poll():
            self._output.seek(0)
            raise RuntimeError(f"The worker ended with exit code {self._process.returncode}:\n{self._output.read()}")

    def ends(self) -> None:
        """Wait until it has run all jobs."""
        self._process.wait()
        self.check()

    def cpu_seconds(self) -> float | None:
        """Processor time of all its threads until now; None where the system does not tell."""
        try:
            # /proc/PID/stat counts in hundredths of a second, which is more than an idle process uses in one.
            schedules = [path.read_text() for path in Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")]
        except OSError:
            return None
        return sum(int(schedule.split()[0]) for schedule in schedules) / 1e9 if schedules else None


# -- Drains ----------------------------------------------------------------------------------------------------------

WAITING: LiteralString = """
SELECT DISTINCT application_name
  FROM pg_locks JOIN pg_stat_activity USING (pid)
 WHERE NOT granted AND relation = 'proletarian.job'::regclass
"""
# From the first job's end to the last's. All jobs that ended with the first, in a batch, are left out with it.
# What lay in the archive before is older than a day.
JOBS_A_SECOND: LiteralString = """
WITH drained AS MATERIALIZED (
    SELECT status, finished_at FROM proletarian.archived_job WHERE finished_at > now() - interval '1 day'
)
SELECT count(*), bool_and(status = ':success'),
       count(*) FILTER (WHERE finished_at > (SELECT min(finished_at) FROM drained))
           / NULLIF(extract(epoch FROM max(finished_at) - min(finished_at)), 0)
  FROM drained
"""
TENTHS: LiteralString = """
SELECT count(*) / extract(epoch FROM max(finished_at) - min(finished_at))
  FROM (SELECT finished_at, ntile(10) OVER (ORDER BY finished_at) AS tenth FROM proletarian.archived_job) AS archived
 GROUP BY tenth ORDER BY tenth
"""


def drain(
    server: Server,
    jobs: int,
    *,
    processes: int = 1,
    threads: int = 1,
    arguments: Sequence[str] = (),
    beside: Callable[[], AbstractContextManager[None]] | None = None,
) -> float:
    """Have worker processes run what is due, `jobs` in all; return jobs a second, the processes' start not counted.

    They start against a locked table, and all go off at the moment when it is unlocked. What `beside` makes is entered
    then, and left when they have ended.
    """
    names = [f"bench{number}" for number in range(1, processes + 1)]
    with ExitStack() as stack, psycopg.connect(server.url) as gate:
        gate.execute("LOCK TABLE proletarian.job IN ACCESS EXCLUSIVE MODE")
        workers = [
            stack.enter_context(WorkerProcess(name, "--drain", "--threads", str(threads), *arguments)) for name in names
        ]

        def all_at_the_gate() -> bool:
            for worker in workers:
                worker.check()
            waiting = [name for (name,) in server.sql(WAITING)]
            return all(any(name.startswith(f"{worker}-") for name in waiting) for worker in names)

        wait_for(all_at_the_gate)
        with beside() if beside is not None else nullcontext():
            gate.commit()
            for worker in workers:
                worker.ends()
    [(archived, successes, rate)] = server.sql(JOBS_A_SECOND)
    if archived != jobs or not successes or rate is None:
        raise RuntimeError(f"Of {jobs} jobs {archived} were archived, all as a success: {successes}; rate {rate}")
    return float(rate)


def tenths(server: Server) -> list[float]:
    """Jobs a second in each tenth of the jobs that were drained."""
    return [float(rate) for (rate,) in server.sql(TENTHS)]


# -- Idle workers ----------------------------------------------------------------------------------------------------


class Ear:
    """Hears from `bench/tell` jobs when they ran."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self.port = int(told.getsockname()[1])

    def hear(self) -> tuple[float, float]:
        """Wait for a job; return when it began and its process_at, in seconds since 1970."""
        began, process_at = TOLD.unpack(self._told.recv(TOLD.size))
        return began, process_at


@contextmanager
def idle_worker(server: Server, *arguments: str) -> Iterator[tuple[WorkerProcess, Ear]]:
    """A worker process that has run a job, and now has none."""
    server.empty()
    with WorkerProcess("bench", *arguments) as worker, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as told:
        told.bind(("127.0.0.1", 0))
        told.settimeout(PATIENCE)
        ear = Ear(told)
        for _ in range(3):
            enqueue("bench/tell", ear.port)
            ear.hear()
        time.sleep(0.5)
        yield worker, ear
        worker.check()


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it is true. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE} seconds: {condition.__name__}")
        time.sleep(0.02)
