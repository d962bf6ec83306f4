"""Handlers of the chaos suite. A payload says how long a job takes, and at how many attempts it fails."""

from __future__ import annotations

import os
import signal
import time

from django.db import InterfaceError, InternalError, OperationalError, transaction
from django.db.models import F

from django_proletarian import Job, RetryStrategy, job_handler
from tests.chaos.project import diary
from tests.chaos.project.models import Effect, Ledger
from tests.chaos.project.work import RETRIES, Work

# What an outage looks like to a handler. The last is what psycopg raises when a pooler hands on the answer to a COMMIT
# together with the end of the server's connection.
OUTAGES = (OperationalError, InterfaceError, InternalError)
LEASE = 1.0  # seconds; a pause may be longer


def patience(job: Job, error: BaseException) -> RetryStrategy:
    """Two retries for what is the job's own fault, and one more each time that its database went away."""
    diary.write("counted", job, error)
    retries = job.attempts if isinstance(error, OUTAGES) else RETRIES
    return RetryStrategy(retries=retries, delays=[0.2])


def gave_up(job: Job, error: BaseException) -> None:
    diary.write("gave-up", job, error)


@job_handler("chaos/atomic", atomic=True, advanced=True, retry_strategy=patience, failed_job=gave_up)
def atomic(job: Job) -> None:
    """Write a row, which must be gone again if the job fails."""
    with diary.told(job):
        Ledger.objects.create(job_id=job.job_id)
        if job.job_id.int % 4 == 0:  # a worker commits at once for those that wait for it, and else with the next claim
            transaction.on_commit(lambda: diary.write("committed", job))
        Work.of(job).do(job.attempts)


@job_handler("chaos/plain", advanced=True, retry_strategy=patience, failed_job=gave_up)
def plain(job: Job) -> None:
    """Append once, however often it runs, on a connection that knows nothing of the worker's."""
    with diary.told(job):
        Work.of(job).do(job.attempts)
        with transaction.atomic():
            Effect.objects.bulk_create([Effect(job_id=job.job_id)], ignore_conflicts=True)
            Effect.objects.filter(job_id=job.job_id).update(runs=F("runs") + 1)


@job_handler("chaos/leased", lease=LEASE, advanced=True, retry_strategy=patience, failed_job=gave_up)
def leased(job: Job) -> None:
    """Write a row behind a fence, unless one is there: however often it runs, and in how many processes at once."""
    with diary.told(job):
        Work.of(job).do(job.attempts)
        with transaction.atomic():
            job.fence()
            if not Ledger.objects.filter(job_id=job.job_id).exists():
                Ledger.objects.create(job_id=job.job_id)


@job_handler("chaos/poison", advanced=True, retry_strategy=patience, failed_job=gave_up)
def poison(job: Job) -> None:
    """Take the time that the job takes, then kill the process that runs it."""
    with diary.told(job):
        time.sleep(Work.of(job).seconds)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
