"""Django's tasks on our backend and on django-tasks-db's: the same task, enqueued one by one and drained.

django-tasks-db comes with the extra `bench`. Its workers are its own command at its fastest, without pauses, and its
speed is read from its rows, as ours is: from the first task's finished_at to the last's.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from functools import partial
from typing import LiteralString

from tests.benchmarks.server import Server
from tests.benchmarks.workers import ROOT, drain

TEXT = "Your order has been sent today, and will be with you in two or three days if nothing comes between"
WORKERS = 4
ALIASES = {"results on": "default", "results off": "bare"}  # in TASKS, by what is different
THEIR_RATE: LiteralString = """
SELECT count(*), bool_and(status = 'SUCCESSFUL'),
       (count(*) - 1) / NULLIF(extract(epoch FROM max(finished_at) - min(finished_at)), 0)
  FROM django_tasks_database_dbtaskresult
"""


def have_theirs() -> bool:
    """Whether django-tasks-db is installed."""
    return importlib.util.find_spec("django_tasks_db") is not None


def enqueue_and_drain(server: Server, tasks: int, theirs: int) -> dict[str, float]:
    """Tasks a second, enqueued and drained: ours `tasks` of them, django-tasks-db's `theirs`, since they take long."""
    values: dict[str, float] = {}
    for name, alias in ALIASES.items():
        for threads in (1, WORKERS):
            server.empty()
            values[f"enqueue, {name}"] = enqueue(alias, tasks)
            server.sql("VACUUM ANALYZE proletarian.job")
            values[f"drain, {name}, {threads} thread{'s' * (threads > 1)}"] = drain(server, tasks, threads=threads)
    for workers in (1, WORKERS):
        server.sql("TRUNCATE django_tasks_database_dbtaskresult")
        values["enqueue, django-tasks-db"] = enqueue("theirs", theirs)
        server.sql("VACUUM ANALYZE django_tasks_database_dbtaskresult")
        values[f"drain, django-tasks-db, {workers} process{'es' * (workers > 1)}"] = their_drain(
            server, theirs, workers
        )
    one, several = (values[f"drain, django-tasks-db, {what}"] for what in ("1 process", f"{WORKERS} processes"))
    for name in ALIASES:
        values[f"ratio, {name}, 1 / 1"] = values[f"drain, {name}, 1 thread"] / one
        values[f"ratio, {name}, {WORKERS} / {WORKERS}"] = values[f"drain, {name}, {WORKERS} threads"] / several
    return values


def enqueue(alias: str, tasks: int) -> float:
    """Enqueue so many, each in its own transaction; return how many a second."""
    from tests.benchmarks.project.tasks import TASKS  # a backend needs settings

    send = partial(TASKS[alias].enqueue, text=TEXT)
    began = time.perf_counter()
    for number in range(tasks):
        send(number)
    return tasks / (time.perf_counter() - began)


def their_drain(server: Server, tasks: int, workers: int) -> float:
    """Have django-tasks-db's workers run them; return tasks a second."""
    command = [sys.executable, "-m", "django", "db_worker", "--backend", "theirs", "--batch", "--interval", "0"]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.benchmarks.project.settings"}
    processes = [
        subprocess.Popen(
            [*command, "--no-startup-delay", "--no-reload"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(workers)
    ]
    for process in processes:
        _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(f"db_worker ended with {process.returncode}: {said.decode()[-2000:]}")
    [(finished, successes, rate)] = server.sql(THEIR_RATE)
    if finished != tasks or not successes or rate is None:
        raise RuntimeError(f"Of {tasks} tasks {finished} finished, all as a success: {successes}; rate {rate}")
    return float(rate)
