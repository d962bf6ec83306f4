"""The chaos suite's enqueuer: what it has enqueued is what it says, whenever its connection dies."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.live.processes import ROOT, sql
from tests.scratch import scratch_database

pytestmark = pytest.mark.live

# Its models are no app of the tests' settings, so it runs in a process of its own.
RUN = """
import django, uuid
django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)

from django.db import OperationalError, transaction
from tests.chaos import enqueuer
from tests.chaos.plan import Chunk, PlannedJob
from tests.chaos.project.work import Work

def chunk(number, size, rolled_back=False):
    jobs = [PlannedJob(job_id=uuid.uuid4(), job_type="chaos/plain", work=Work(0, 0), due_in=0) for _ in range(size)]
    return Chunk(number=number, at=0, jobs=tuple(jobs), rolled_back=rolled_back)

real, calls = enqueuer.enqueue_chunk, []

def dying(chunk):
    calls.append(chunk.number)
    if calls == [1]:
        with transaction.atomic():
            real(chunk)
            raise OperationalError("before the commit")
    real(chunk)
    if calls in ([1, 1, 2], [1, 1, 2, 3]):
        raise OperationalError("after the commit, or the rollback")

enqueuer.enqueue_chunk = dying
it = enqueuer.Enqueuer((chunk(1, 1), chunk(2, 3), chunk(3, 1, rolled_back=True)))
it.run()
print(it.error, calls, it.lost_connections, it.in_doubt)
"""


def test_a_chunk_whose_commit_is_in_doubt_is_enqueued_exactly_once() -> None:
    with scratch_database() as url:
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.chaos.project.settings"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        # The first is tried again, the second is found committed; the third is undone each time that it is tried.
        assert done.stdout == "None [1, 1, 2, 3, 3] 3 1\n"
        assert sql(url, "SELECT number FROM project_chunk ORDER BY number") == [(1,), (2,)]
        assert sql(url, "SELECT count(*) FROM proletarian.job") == [(4,)]
