"""What is kept of attempts, and what is not: rows of job_attempt, written by the transaction that decides."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from django_proletarian import JobInterrupted, RetryStrategy, conf, enqueue, job_handler
from django_proletarian.attempts import MOST_TEXT, Failed, storable
from django_proletarian.connection import ClaimConnection
from django_proletarian.models import ArchivedJob, Job, JobAttempt
from django_proletarian.worker import process_next_job
from tests.store.test_crashes import crash_of, settle

QUEUE = "proletarian/default"


def run(claim: ClaimConnection, **changes: Any) -> bool | None:
    options = conf.worker_options(database="default", queues=None, worker_id="tests", **changes)
    return process_next_job(options, claim, QUEUE)


def kept(job_id: UUID) -> list[tuple[int, str]]:
    """Numbers and outcomes of the job's attempts."""
    attempts = JobAttempt.objects.filter(job_id=job_id).order_by("attempt_id")
    return [(attempt.attempt, attempt.outcome) for attempt in attempts]


def test_a_job_that_fails_twice_and_succeeds_leaves_its_two_failures(claim: ClaimConnection) -> None:
    @job_handler("tests/third-time", retry_strategy=RetryStrategy(retries=2), advanced=True)
    def third_time(job: Any) -> None:
        if job.attempts < 3:
            raise ValueError(f"attempt {job.attempts}")

    job_id = enqueue(third_time)
    began = timezone.now()
    while run(claim):
        pass

    assert kept(job_id) == [(1, "retry"), (2, "retry")]
    first = JobAttempt.objects.earliest("attempt_id")
    assert (first.worker_id, first.exception_class, first.message) == ("tests", "ValueError", "attempt 1")
    assert first.traceback is not None
    assert first.traceback.splitlines()[-1] == "ValueError: attempt 1"
    assert 'raise ValueError(f"attempt {job.attempts}")' in first.traceback
    ours = re.compile(r"/django_proletarian/(worker|calling|handlers)\.py")
    assert not ours.search(first.traceback)  # how it was called is the same for all
    assert began - timedelta(seconds=1) < first.started_at <= first.finished_at < timezone.now() + timedelta(seconds=1)
    assert first.result is None


def test_the_last_failure_is_called_failure(claim: ClaimConnection) -> None:
    job_handler("tests/fail", retry_strategy=RetryStrategy(retries=1))(lambda payload: 1 / 0)
    job_id = enqueue("tests/fail")
    while run(claim):
        pass
    assert kept(job_id) == [(1, "retry"), (2, "failure")]


def test_all_are_kept_if_asked_with_what_they_returned(claim: ClaimConnection) -> None:
    job_handler("tests/count")(lambda payload: {"counted": len(payload)})
    job_id = enqueue("tests/count", [1, 2, 3])
    run(claim, record_attempts="all")
    [attempt] = JobAttempt.objects.all()
    assert (attempt.job_id, attempt.outcome, attempt.exception_class, attempt.traceback) == (
        *(job_id, "success", None, None),
    )
    assert conf.serializer().decode(attempt.result or "") == {"counted": 3}


def test_a_result_that_no_row_can_hold_is_not_kept_and_the_job_succeeds(claim: ClaimConnection) -> None:
    job_handler("tests/odd")(lambda payload: object())
    job_id = enqueue("tests/odd")
    run(claim, record_attempts="all")
    assert kept(job_id) == [(1, "success")]
    assert JobAttempt.objects.get().result is None
    assert ArchivedJob.objects.get().status == "success"


def test_none_are_kept_if_asked(claim: ClaimConnection) -> None:
    job_handler("tests/fail")(lambda payload: 1 / 0)
    enqueue("tests/fail")
    run(claim, record_attempts="none")
    assert not JobAttempt.objects.exists()
    assert ArchivedJob.objects.get().status == "failure"


def test_an_interrupted_attempt_is_kept_and_not_counted(claim: ClaimConnection) -> None:
    @job_handler("tests/interrupted")
    def interrupted(payload: object) -> None:
        raise JobInterrupted

    job_id = enqueue(interrupted)
    run(claim)
    run(claim)
    assert kept(job_id) == [(1, "interrupted"), (1, "interrupted")]
    assert Job.objects.get().attempts == 0


def test_a_crash_is_kept_with_the_worker_that_died_and_since_when_it_ran(claim: ClaimConnection) -> None:
    job_handler("tests/fragile")(lambda payload: None)
    job_id = enqueue("tests/fragile")
    assert settle(claim, crash_of(job_id))
    [attempt] = JobAttempt.objects.all()
    assert (attempt.outcome, attempt.worker_id, attempt.attempt) == ("crash", "dead-1", 1)
    assert attempt.exception_class == "django_proletarian.errors.WorkerCrashed"
    assert "SIGKILL" in str(attempt.message)
    assert timedelta(seconds=59) < attempt.finished_at - attempt.started_at < timedelta(seconds=90)


def test_each_job_of_a_batch_has_a_record_of_its_own(claim: ClaimConnection) -> None:
    @job_handler("tests/odd-ones-fail")
    def odd_ones_fail(number: int) -> None:
        if number % 2:
            raise ValueError(number)

    ids = [enqueue(odd_ones_fail, number) for number in range(4)]
    while run(claim, batch_size=10):
        pass
    assert [kept(job_id) for job_id in ids] == [[], [(1, "failure")], [], [(1, "failure")]]


def test_dates_follow_the_worker_s_clock_if_it_has_one(claim: ClaimConnection) -> None:
    job_handler("tests/fail")(lambda payload: 1 / 0)
    enqueue("tests/fail")
    new_year = datetime(2099, 1, 1, tzinfo=UTC)
    run(claim, clock=lambda: new_year)
    [attempt] = JobAttempt.objects.all()
    assert new_year - timedelta(seconds=60) < attempt.started_at <= attempt.finished_at <= new_year


def test_jobs_run_where_there_is_no_table_of_attempts(claim: ClaimConnection) -> None:
    job_handler("tests/fail")(lambda payload: 1 / 0)
    job_id = enqueue("tests/fail")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE proletarian.job_attempt RENAME TO elsewhere")
    try:
        assert run(claim) is True
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE proletarian.elsewhere RENAME TO job_attempt")
    assert ArchivedJob.objects.get().job_id == job_id
    assert kept(job_id) == []


# -- Texts -----------------------------------------------------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_texts_that_postgresql_can_not_hold_are_mended(
    claim: ClaimConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "django_proletarian")  # pytest-xdist can't send such a text

    @job_handler("tests/odd-text")
    def odd_text(payload: object) -> None:
        raise ValueError("a\x00b\ud800c")

    enqueue(odd_text)
    run(claim)
    [attempt] = JobAttempt.objects.all()
    assert attempt.message == "ab?c"
    assert attempt.traceback is not None
    assert attempt.traceback.endswith("ValueError: ab?c\n")


def test_an_exception_that_can_not_say_what_it_is_is_kept_all_the_same() -> None:
    failed = Failed.by(Unspeakable())
    assert failed.exception_class.endswith("test_attempts.Unspeakable")
    assert failed.message == "<its __str__ raised RuntimeError>"
    assert "Unspeakable: <exception str() failed>" in failed.traceback


def test_a_long_chain_of_exceptions_is_cut_in_its_middle() -> None:
    error: Exception = ValueError("the first cause")
    for number in range(500):
        later = RuntimeError(f"number {number}")
        later.__cause__ = error
        error = later
    told = Failed.by(error).traceback
    assert len(told) < MOST_TEXT + 100
    assert "the first cause" in told
    assert told.endswith("RuntimeError: number 499\n")
    assert "characters left out" in told


@pytest.mark.parametrize("length", [MOST_TEXT - 1, MOST_TEXT, MOST_TEXT + 1])
def test_only_what_is_longer_is_cut(length: int) -> None:
    assert (storable("x" * length) == "x" * length) == (length <= MOST_TEXT)
