"""The project of all four queues at work: code in it, and worker processes that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import eventually
from tests.live.processes import ROOT, run_python, sql

# Each queue's own command, for one task at a time.
WORKERS = {
    "ours": ["django", "proletarian_worker", "--heartbeat-file", ""],
    "django-tasks-db": ["django", "db_worker", "--backend", "django-tasks-db", "--no-startup-delay", "--no-reload"],
    "procrastinate": ["django", "procrastinate", "worker"],
    "Celery": ["celery", "-A", "tests.comparison.project.celery_app", "worker", "--without-gossip", "--without-mingle"],
}
UNTIL_EMPTY = {"ours": "--drain", "django-tasks-db": "--batch", "procrastinate": "--one-shot"}


class Shop:
    """The project with the database at `url`; `directory` holds Celery's messages and what workers print."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        for name in ("queues", "control", "results"):
            (directory / name).mkdir()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._environment = {
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "tests.comparison.project.settings",
            "MESSAGES": str(directory),
        }

    def run(self, code: str) -> str:
        """Run code with the project's tasks at hand; return what it printed."""
        return self._run("-c", f"import django; django.setup()\n{BEFORE}\n{code}")

    def migrate(self) -> None:
        self._run("-m", "django", "migrate", "--run-syncdb", "--verbosity", "0")

    def work(self, queue: str) -> None:
        """Have a worker run what is due, and wait until it has ended by itself."""
        self._run("-m", *WORKERS[queue], UNTIL_EMPTY[queue])

    def start(self, queue: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a worker; killed at the end."""
        with (self.directory / f"worker-{len(self._workers) + 1}.log").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *WORKERS[queue], *arguments],
                cwd=ROOT,
                env={**os.environ, **self._environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._workers.append(process)
        return process

    def kill(self, task: str) -> int:
        """Wait until `task` runs, and kill the process that runs it; return the process's id."""
        [[pid]] = eventually(lambda: self.sql("SELECT pid FROM project_run WHERE task = %s", task))
        os.kill(pid, signal.SIGKILL)
        return int(pid)

    def runs(self, task: str) -> int:
        """How often `task` has begun."""
        [[count]] = self.sql("SELECT count(*) FROM project_run WHERE task = %s", task)
        return int(count)

    def sql(self, statement: str, *values: object) -> list[Any]:
        return sql(self.url, statement, values)

    @property
    def messages(self) -> list[str]:
        """Celery's messages that wait in a queue, as the files they are."""
        return sorted(file.name for file in (self.directory / "queues").iterdir())

    def close(self) -> None:
        """Kill all workers, and show what they printed."""
        for process in self._workers:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for log in sorted(self.directory.glob("worker-*.log")):
            print(f"--- {log.name}\n{log.read_text()}")

    def _run(self, *arguments: str) -> str:
        return run_python(*arguments, **self._environment)


def finished(shop: Shop) -> dict[str, dict[str, Any]]:
    """What Celery says of the tasks that are over and will not be retried, by their ids."""
    results = {}
    for file in (shop.directory / "results").iterdir():
        try:
            result = json.loads(file.read_text())
        except json.JSONDecodeError:
            continue  # it is being written
        if result["status"] in ("SUCCESS", "FAILURE"):
            results[result["task_id"]] = result
    return results


BEFORE = """
from django.db import transaction
from tests.comparison.project import celery_app, tasks
"""
