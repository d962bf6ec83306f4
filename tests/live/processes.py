"""Worker processes of the tests, and what the server says about them.

Used by all tests that need a process to kill, to signal, or to share a queue with another.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from django.db import connections

from tests.conftest import eventually

ROOT = Path(__file__).parents[2]
ENDS_WITHIN = 90  # seconds; much more than any process here needs, since the machine may be busy


def run_python(*arguments: str, **environment: str) -> str:
    """Run Python in the repository, and wait until it has ended well; return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENDS_WITHIN,
        check=False,  # the assertion shows what it printed
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


class WorkerProcess:
    """`manage.py proletarian_worker` with `arguments` on the database at `url`; what it prints goes to `output`.

    `memory` limits the address space of each process, in bytes. `within` is a command that runs what comes behind it
    somewhere else.
    """

    def __init__(
        self,
        output: Path,
        url: str,
        *arguments: str,
        settings: str = "tests.settings",
        memory: int | None = None,
        within: Sequence[str] = (),
        **environment: str,
    ) -> None:
        self._output = output
        self.heartbeat = output.with_suffix(".heartbeat")
        limit = [] if memory is None else ["bash", "-c", f'ulimit -v {memory // 1024} && exec "$@"', "worker"]
        own = ["--heartbeat-file", str(self.heartbeat)]  # not that of all workers of the project
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                [*within, *limit, sys.executable, "-m", "django", "proletarian_worker", *own, *arguments],
                cwd=ROOT,
                env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": settings, **environment},
                stdout=file,
                stderr=file,
                # A group of its own, so that a reloader's child ends with it.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """As `ends` returns it; None while the process runs."""
        return self._process.poll()

    @property
    def log(self) -> str:
        """What the process has printed so far."""
        return self._output.read_text()

    def says(self, text: str) -> None:
        """Wait until it has printed `text`."""
        eventually(lambda: text in self.log or self._process.poll() is not None)
        assert text in self.log

    def send(self, signum: signal.Signals) -> None:
        self._process.send_signal(signum)

    @property
    def children(self) -> list[int]:
        """Process ids of the worker processes that it has started so far, oldest first."""
        return [int(pid) for pid in re.findall(r"/worker-process-started .* pid=(\d+)", self.log)]

    def ends(self, within: float = ENDS_WITHIN) -> int:
        """Wait until it has ended; return its exit code, which is negative for a signal."""
        return self._process.wait(within)

    def stop(self) -> int:
        """Ask it to stop, as a service manager does; return its exit code."""
        self.send(signal.SIGTERM)
        return self.ends()

    def close(self) -> None:
        """Kill it, if it still runs, and show what it printed."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        print(f"--- {self._output.name}, exit code {self._process.returncode}\n{self.log}")


def is_alive(pid: int) -> bool:
    """Whether a process of this id runs; one that has ended, and that nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def url_of(alias: str = "default", user: str | None = None) -> str:
    """What DATABASE_URL of another process would be for the test database behind `alias`."""
    given = connections[alias].settings_dict
    password = f":{given['PASSWORD']}" if given["PASSWORD"] else ""
    if user is not None:
        password = f":{user}"
    return f"postgresql://{user or given['USER']}{password}@{given['HOST']}:{given['PORT']}/{given['NAME']}"


def sql(url: str, statement: str, values: Sequence[object] = ()) -> list[Any]:
    """Run `statement` on a connection of its own; return its rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


def migrate(url: str) -> None:
    """Make all tables in the database at `url`."""
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", "--run-syncdb", "--verbosity", "0"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        check=True,
        timeout=60,
    )


def insert_jobs(url: str, job_type: str, payloads: Sequence[str]) -> None:
    """Insert due jobs, their payloads as encoded, into a database that this process knows no alias of."""
    sql(
        url,
        "INSERT INTO proletarian.job SELECT gen_random_uuid(), ':proletarian/default', %s, payload, 0, now(), now() "
        "FROM unnest(%s::text[]) AS payload",
        (f":{job_type}", list(payloads)),
    )


def claims_of(url: str, worker_id: str) -> list[int]:
    """Process ids of the server's ends of the claim connections of one worker."""
    found = sql(
        url,
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND starts_with(application_name, %s) "
        "AND NOT (starts_with(application_name, %s) OR starts_with(application_name, %s))",
        (f"{worker_id}-", f"{worker_id}-listener", f"{worker_id}-heartbeat"),
    )
    return [pid for (pid,) in found]


def unlocked_jobs(url: str) -> list[tuple[Any, ...]]:
    """job_type and attempts of the rows that nobody has locked."""
    return sql(url, "SELECT job_type, attempts FROM proletarian.job ORDER BY process_at FOR UPDATE SKIP LOCKED")


def archived(url: str) -> list[tuple[Any, ...]]:
    """job_type, status and attempts of the archive's rows, oldest first."""
    return sql(url, "SELECT job_type, status, attempts FROM proletarian.archived_job ORDER BY finished_at")
