"""What the events happen to: a PostgreSQL server, a PgBouncer before it, and two supervisors with their processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.conftest import eventually
from tests.live.pgbouncer import PROGRAM, PgBouncer
from tests.live.processes import WorkerProcess, sql
from tests.postgres import Postgres

SETTINGS = "tests.chaos.project.settings"
PATIENCE = 180  # seconds that whatever must happen may take on a busy machine

PROCESSES = 2  # of each supervisor
THREADS = 3  # of one process, at the most
THREADS_OF_ALL = PROCESSES * (3 + 2)


@dataclass(frozen=True, slots=True)
class Process:
    """What `ps` tells about one."""

    pid: int
    parent: int
    group: int
    command: str


def running_processes() -> list[Process]:
    """All of this machine, oldest first, but those that have ended and are not buried yet."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,pgid=,stat=,command="], capture_output=True, text=True, check=True
    )
    found = [line.split(maxsplit=4) for line in listed.stdout.splitlines()]
    return sorted(
        (
            Process(int(pid), int(parent), int(group), command)
            for pid, parent, group, state, command in found
            if state[0] != "Z"
        ),
        key=lambda process: process.pid,
    )


class Supervisor:
    """`manage.py proletarian_worker`, started again under the same name whenever it has ended."""

    def __init__(self, name: str, url: str, directory: Path, *arguments: str) -> None:
        self.name = name
        self.starts = 0
        self.killed = False  # the one that runs now, or ran last, was killed on purpose
        self.mishaps: list[str] = []  # how those ended that should have ended otherwise, or not
        self._url = url
        self._directory = directory
        self._arguments = arguments
        self._groups: list[int] = []  # process groups of all that were started
        self.start()

    def start(self) -> None:
        """Start it, and don't wait."""
        self.starts += 1
        self.killed = False
        self._process = WorkerProcess(
            self._directory / f"{self.name}-{self.starts}.log",
            self._url,
            *("--worker-id", self.name, *self._arguments),
            settings=SETTINGS,
            CHAOS_NAME=self.name,
            CHAOS_DIARY=str(self._directory / "diary"),
        )
        self._groups.append(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.exit_code is None

    def children(self) -> list[int]:
        """Process ids of its worker processes, oldest first."""
        # Not of the one that multiprocessing starts beside them.
        return [
            process.pid
            for process in running_processes()
            if process.parent == self.pid and "resource_tracker" not in process.command
        ]

    def left(self) -> list[Process]:
        """All that it has started, ever, and that still run."""
        return [process for process in running_processes() if process.group in self._groups]

    def send(self, signum: signal.Signals) -> None:
        self._process.send(signum)

    def kill(self) -> None:
        """Kill it, but not its children, which have to notice."""
        self.killed = True
        self.send(signal.SIGKILL)
        self._process.ends()

    def revive(self) -> bool:
        """Start it again if it has ended, as a service manager does; return whether that was needed."""
        if self.runs:
            return False
        if not self.killed:
            self.mishaps.append(f"{self.name}-{self.starts} ended by itself with exit code {self._process.exit_code}")
        self.start()
        return True

    def stop(self) -> None:
        """Stop it as a service manager does, which must go well."""
        # One that was started a moment ago can't listen yet, and would die of the signal.
        eventually(lambda: self.children() or not self.runs, PATIENCE)
        self.send(signal.SIGTERM)
        try:
            exit_code = self._process.ends(PATIENCE)
        except subprocess.TimeoutExpired:
            self.mishaps.append(f"{self.name}-{self.starts} did not stop within {PATIENCE} seconds")
        else:
            if exit_code != 0:
                self.mishaps.append(f"{self.name}-{self.starts} was stopped, and had exit code {exit_code}")


class World:
    """All of it. What it writes, logs and the diary, goes to `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pooler: PgBouncer | None = None  # on a machine that has none
        self.supervisors: dict[str, Supervisor] = {}
        self._stack = ExitStack()
        self.server = self._stack.enter_context(Postgres(log_line_prefix="%m %p %a ", log_statement="none"))
        # For this process's Django; those that it starts are told by their arguments.
        os.environ["DATABASE_URL"] = self.server.url

    def populate(self) -> None:
        """Start the pooler and the supervisors; the tables are there by now."""
        (self.directory / "diary").touch()
        if PROGRAM is not None:
            self.pooler = self._stack.enter_context(PgBouncer("transaction"))
        self.supervisors = {
            "direct": self._supervisor("direct", self.server.url, "--threads", "3"),
            # Fewer threads: a job of theirs needs two of the pooler's ten connections to the server.
            "pooled": self._supervisor(
                "pooled",
                self.pooler.url if self.pooler is not None else self.server.url,
                "--threads",
                "2",
                "--batch-size",
                "5",
            ),
        }

    def _supervisor(self, name: str, url: str, *arguments: str) -> Supervisor:
        return Supervisor(name, url, self.directory, "--processes", str(PROCESSES), *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for supervisor in self.supervisors.values():
            for process in supervisor.left():
                os.kill(process.pid, signal.SIGKILL)
        shutil.copy(self.server.directory / "log", self.directory / "postgresql.log")
        self._stack.close()

    def sql(self, statement: str) -> list[Any]:
        """Run `statement` on a connection of its own; return its rows."""
        return sql(self.server.url, statement)

    def backends(self) -> list[int]:
        """Process ids of the server's ends of all connections but the one that asks."""
        found = self.sql(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in found]

    def terminate(self, backend: int) -> None:
        self.sql(f"SELECT pg_terminate_backend({backend})")

    def connections(self) -> list[str]:
        """The server's clients, but for the one that asks."""
        found = self.sql(
            "SELECT application_name || ': ' || state || ', ' || query FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return [text for (text,) in found]

    def left_processes(self) -> list[str]:
        """The processes of all workers that run."""
        left = [process for supervisor in self.supervisors.values() for process in supervisor.left()]
        return [f"{process.pid} {process.command}" for process in left]
