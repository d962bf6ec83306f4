"""Handlers for tests that run workers in processes of their own. Tests in this process declare theirs with `handles`."""

import os
import pathlib

from django_proletarian import Job, job_handler, wait_or_stop
from tests.app.models import Entry


@job_handler("tests/append", advanced=True)
def append(job: Job) -> None:
    Entry.objects.create(text=str(job.payload), job_id=job.job_id)


@job_handler("tests/append-atomic", advanced=True, atomic=True)
def append_atomic(job: Job) -> None:
    Entry.objects.create(text=str(job.payload), job_id=job.job_id)


@job_handler("tests/wait-for-file", advanced=True)
def wait_for_file(job: Job) -> None:
    """Create payload["started"] with this process's id, then wait until payload["go"] exists, looking away from stops."""
    payload = job.payload
    assert isinstance(payload, dict)
    started = pathlib.Path(str(payload["started"]))
    started.with_suffix(".tmp").write_text(str(os.getpid()))
    started.with_suffix(".tmp").rename(started)
    while not pathlib.Path(str(payload["go"])).exists():
        wait_or_stop(0.02)
    Entry.objects.create(text="waited", job_id=job.job_id)
