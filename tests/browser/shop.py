"""The example shop as the browser tests meet it: a web server with a database of its own, and rows put there by SQL."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb

from tests.conftest import eventually

ROOT = Path(__file__).parents[2]
TABLES = ("job", "archived_job", "job_attempt", "worker")
# Prints a session of each person.
PREPARE = """
import django; django.setup()
from importlib import import_module
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.contrib.auth.models import Permission, User
User.objects.create_superuser("boss")
User.objects.create_user("stranger", is_staff=True)
viewer = User.objects.create_user("viewer", is_staff=True)
ours = Permission.objects.filter(content_type__app_label="django_proletarian")
viewer.user_permissions.set(ours.filter(codename__startswith="view_"))
for user in User.objects.all():
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    print(user.username, session.session_key)
"""


class Shop:
    """`manage.py runserver` on a free port, on the database at `url`, under the settings beside this file."""

    def __init__(self, url: str, output: Path) -> None:
        self._url = url
        self.output = output
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "tests.browser.settings",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "example_project")]),
            "DJANGO_RUNSERVER_HIDE_WARNING": "true",
        }
        # By the name of a person, who is logged in by it.
        self.sessions = dict(line.split() for line in self._run("-c", PREPARE).splitlines())
        port = _free_port()
        self.address = f"http://127.0.0.1:{port}"
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "django", "runserver", "--noreload", f"127.0.0.1:{port}"],
                cwd=ROOT,
                env=self._environment,
                stdout=file,
                stderr=file,
            )
        self._connection = psycopg.connect(url, autocommit=True)
        eventually(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.output.read_text()
        try:
            urllib.request.urlopen(f"{self.address}/admin/login/", timeout=10).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and commit; return its rows."""
        cursor = self._connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []

    def connect(self) -> psycopg.Connection:
        """Another connection, in whose transaction locks can be held, as a worker's does while a job runs."""
        return psycopg.connect(self._url)

    def run(self, *arguments: str) -> None:
        """Run a management command to its end."""
        self._run("-m", "django", *arguments)

    def _run(self, *arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def empty(self) -> None:
        self.sql(f"TRUNCATE {', '.join(f'proletarian.{table}' for table in TABLES)}")

    def enqueue(
        self,
        job_type: str = "shop.jobs/send_receipt",
        payload: str = '["^ ","~:order-id",42,"~:email","a@b.c"]',
        *,
        queue: str = "proletarian/default",
        attempts: int = 0,
        due_in: float = -60,
        number: int = 1,
    ) -> list[UUID]:
        """Put jobs in the queue that are due in so many seconds; return their ids."""
        rows = self.sql(
            "INSERT INTO proletarian.job SELECT gen_random_uuid(), %s, %s, %s, %s, now() - interval '1 hour', "
            "now() + %s * interval '1 second' FROM generate_series(1, %s) RETURNING job_id",
            *(f":{queue}", f":{job_type}", payload, attempts, due_in, number),
        )
        return [job_id for (job_id,) in rows]

    def archive(
        self,
        status: str = "success",
        job_type: str = "shop.jobs/send_receipt",
        *,
        queue: str = "proletarian/default",
        minutes: float = 5,
        number: int = 1,
    ) -> list[UUID]:
        """Put jobs in the archive that finished so many minutes ago; return their ids."""
        rows = self.sql(
            "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), %s, %s, %s, 1, now() - interval '2 days', "
            "finished.at - interval '2 seconds', %s, finished.at FROM generate_series(1, %s) AS number, "
            "LATERAL (SELECT now() - (%s + number / 60.0) * interval '1 minute' AS at) AS finished RETURNING job_id",
            *(f":{queue}", f":{job_type}", '["^ ","~:order-id",42,"~:email","a@b.c"]', f":{status}", number, minutes),
        )
        return [job_id for (job_id,) in rows]

    def record_attempt(self, job_id: UUID, attempt: int = 1, outcome: str = "retry") -> None:
        """Put a failed attempt in, with a traceback."""
        self.sql(
            "INSERT INTO proletarian.job_attempt (job_id, attempt, worker_id, started_at, finished_at, outcome, "
            "exception_class, message, traceback) VALUES (%s, %s, 'shop-1', now() - interval '90 seconds', "
            "now() - interval '88 seconds', %s, 'shop.provider.ProviderBusy', 'try again in 2 s', %s)",
            *(job_id, attempt, outcome),
            'Traceback (most recent call last):\n  File "shop/jobs.py", line 50, in take_payment\n'
            "    reference = provider.charge(amount, idempotency_key=key)\n"
            "shop.provider.ProviderBusy: try again in 2 s\n",
        )

    def worker(self, name: str, *, silent: float = 1, running: tuple[UUID, ...] = ()) -> None:
        """Put the row of a worker in whose last heartbeat was so many seconds ago, and that ran these jobs then."""
        jobs = [
            {
                "job_id": str(job_id),
                "job_type": "shop.jobs/sales_report",
                "queue": "shop/reports",
                "attempt": 1,
                "seconds": 12.5,
            }
            for job_id in running
        ]
        self.sql(
            "INSERT INTO proletarian.worker (process_id, worker_id, host, pid, queues, processes, threads, version, "
            "started_at, heartbeat_at, running, succeeded, failed) VALUES (%s, %s, 'shop-1', 4711, %s, 2, 2, '1.0', "
            "now() - interval '3 days', now() - %s * interval '1 second', %s, 1234, 5)",
            *(uuid4(), name, Jsonb(["proletarian/default", "shop/reports"]), silent, Jsonb(jobs)),
        )

    def fill(self) -> tuple[UUID, UUID, UUID]:
        """A shop at work: every state and status. Returns the ids of a job to be retried, one that runs, a failure."""
        self.enqueue(number=7)
        self.enqueue(due_in=3600, number=3)
        [retried] = self.enqueue("shop.jobs/take_payment", attempts=2, due_in=120)
        for attempt in (1, 2):
            self.record_attempt(retried, attempt)
        [running] = self.enqueue("shop.jobs/sales_report", '["^ ","~:report-id",1]', queue="shop/reports")
        self.worker("proletarian-1", running=(running,))
        self.worker("proletarian-2", silent=600)
        for minutes in (3, 20, 50, 200, 700):
            self.archive(minutes=minutes, number=40)
        self.archive(job_type="shop.jobs/sales_report", queue="shop/reports", minutes=100, number=4)
        [failed, *_] = self.archive("failure", "shop.jobs/take_payment", minutes=20, number=3)
        self.record_attempt(failed, outcome="failure")
        return retried, running, failed


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
