"""Settling a job whose worker process died: what is counted, what is left alone, what of the project's code runs."""

from __future__ import annotations

import dataclasses
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone

from django_proletarian import RetryStrategy, enqueue, job_handler
from django_proletarian.api import worker_options
from django_proletarian.connection import ClaimConnection
from django_proletarian.crashes import Crash, settle_crash
from django_proletarian.errors import WorkerCrashed
from django_proletarian.log import EventLog
from django_proletarian.models import ArchivedJob, Job
from django_proletarian.slots import Slots
from django_proletarian.worker import process_next_job


def crash_of(job_id: UUID, **values: Any) -> Crash:
    given = {
        "job_id": job_id,
        "attempts": 0,
        "since": time.time() - 60,
        "worker_id": "dead-1",
        "stagger": 0.0,
        **values,
    }
    return Crash(**{"how": "was killed by SIGKILL", **given})


def settle(claim: ClaimConnection, crash: Crash, **options: Any) -> bool:
    chosen = dataclasses.replace(worker_options(queues=None), **options)
    return settle_crash(chosen, claim, crash, Slots.private(1).settlers, EventLog())


@pytest.fixture
def job_id(committed: None) -> UUID:
    job_handler("tests/fragile")(lambda payload: None)
    return enqueue("tests/fragile", "payload")


def test_the_attempt_is_counted_and_the_job_due_again_after_a_second(claim: ClaimConnection, job_id: UUID) -> None:
    assert settle(claim, crash_of(job_id))
    job = Job.objects.get(job_id=job_id)
    assert job.attempts == 1
    assert timedelta(0) < job.process_at - timezone.now() < timedelta(seconds=1)


def test_jobs_of_one_crash_are_put_off_by_more_and_more(claim: ClaimConnection, job_id: UUID) -> None:
    assert settle(claim, crash_of(job_id, stagger=600.0))
    delay = Job.objects.get(job_id=job_id).process_at - timezone.now()
    assert timedelta(seconds=590) < delay < timedelta(seconds=601)


def test_a_leased_job_is_counted_once_and_due_at_once(claim: ClaimConnection, job_id: UUID) -> None:
    due = Job.objects.get(job_id=job_id).process_at.timestamp()
    Job.objects.update(attempts=1, process_at=timezone.now() + timedelta(hours=1))
    crash = crash_of(job_id, leased_from=due)
    assert settle(claim, crash)
    job = Job.objects.get(job_id=job_id)
    assert job.attempts == 1
    assert job.process_at < timezone.now() + timedelta(minutes=1)


def test_a_leased_job_that_has_another_lease_is_left_alone(claim: ClaimConnection, job_id: UUID) -> None:
    until = timezone.now() + timedelta(hours=1)
    Job.objects.update(attempts=2, process_at=until)
    assert settle(claim, crash_of(job_id, leased_from=0.0))
    job = Job.objects.get(job_id=job_id)
    assert (job.attempts, job.process_at) == (2, until)


def test_a_crash_counts_once(claim: ClaimConnection, job_id: UUID) -> None:
    assert settle(claim, crash_of(job_id))
    assert settle(claim, crash_of(job_id))
    assert Job.objects.get(job_id=job_id).attempts == 1


def test_a_job_that_has_finished_just_before_is_left_alone(claim: ClaimConnection, job_id: UUID) -> None:
    assert process_next_job(worker_options(queues=None), claim, "proletarian/default")
    assert settle(claim, crash_of(job_id))
    assert not Job.objects.exists()
    assert [(job.status, job.attempts) for job in ArchivedJob.objects.all()] == [("success", 1)]


def test_a_job_that_another_worker_runs_is_left_to_it(claim: ClaimConnection, job_id: UUID) -> None:
    with transaction.atomic():
        Job.objects.select_for_update().get(job_id=job_id)
        assert not settle(claim, crash_of(job_id))
    assert Job.objects.get(job_id=job_id).attempts == 0
    assert settle(claim, crash_of(job_id))
    assert Job.objects.get(job_id=job_id).attempts == 1


def test_the_last_crash_archives_the_job_and_calls_the_failed_job_callback(
    claim: ClaimConnection, job_id: UUID
) -> None:
    told: list[tuple[int, object, BaseException]] = []
    Job.objects.update(attempts=2)

    assert settle(
        claim,
        crash_of(job_id, attempts=2),
        failed_job=lambda job, error: told.append((job.attempts, job.payload, error)),
    )

    assert [(job.status, job.attempts) for job in ArchivedJob.objects.all()] == [("failure", 3)]
    [(attempts, payload, error)] = told
    assert (attempts, payload) == (3, "payload")
    assert isinstance(error, WorkerCrashed)
    assert str(error) == "The worker process that ran this job was killed by SIGKILL."


def test_a_retry_strategy_that_is_a_function_is_asked_about_the_crash(claim: ClaimConnection, job_id: UUID) -> None:
    def strategy(job: Any, error: BaseException) -> RetryStrategy | None:
        return RetryStrategy(retries=9, delays=[3600]) if isinstance(error, WorkerCrashed) else None

    assert settle(claim, crash_of(job_id), retry_strategy=strategy)
    assert Job.objects.get(job_id=job_id).process_at - timezone.now() > timedelta(minutes=59)


def test_a_retry_strategy_that_raises_counts_as_none(claim: ClaimConnection, job_id: UUID) -> None:
    def strategy(job: Any, error: BaseException) -> None:
        raise ValueError

    assert settle(claim, crash_of(job_id), retry_strategy=strategy)
    assert Job.objects.get(job_id=job_id).attempts == 1


def test_after_two_crashes_while_settling_none_of_the_projects_code_is_called(
    claim: ClaimConnection, job_id: UUID
) -> None:
    def never(*arguments: object) -> Any:
        raise AssertionError

    class Serializer:
        encode = decode = never

    job_handler("tests/terrible", failed_job=never, retry_strategy=never)(never)
    Job.objects.update(job_type="tests/terrible", attempts=2)

    crash = crash_of(job_id, attempts=2, died_settling=2)
    assert settle(claim, crash, failed_job=never, retry_strategy=never, serializer=Serializer())

    assert [(job.status, job.attempts) for job in ArchivedJob.objects.all()] == [("failure", 3)]
