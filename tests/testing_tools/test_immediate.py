"""IMMEDIATE: jobs run when they are committed, in the process that enqueues them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import TestCase, override_settings

from django_proletarian import RetryStrategy, aenqueue, create_queue_worker, enqueue, enqueue_many, job_handler
from django_proletarian.models import ArchivedJob, Job
from django_proletarian.testing import enqueued_jobs, run_jobs
from tests.app.models import Entry


@pytest.fixture(autouse=True)
def _immediate() -> Iterator[None]:
    with override_settings(PROLETARIAN={"IMMEDIATE": True}):
        yield


@pytest.fixture
def write() -> Any:
    return job_handler("tests/write")(lambda payload: Entry.objects.create(text=str(payload)) and None)


def texts() -> list[str]:
    return list(Entry.objects.order_by("pk").values_list("text", flat=True))


def test_outside_a_transaction_a_job_runs_at_once(committed: None, write: Any) -> None:
    job_id = enqueue("tests/write", "written")
    assert texts() == ["written"]
    assert ArchivedJob.objects.get().job_id == job_id


def test_in_a_transaction_a_job_runs_at_its_commit_and_not_after_a_rollback(committed: None, write: Any) -> None:
    with transaction.atomic():
        write.enqueue("committed")
        enqueue_many([("tests/write", 1), ("tests/write", 2)])
        assert texts() == []
    assert texts() == ["committed", "1", "2"]
    with transaction.atomic():
        write.enqueue("undone")
        transaction.set_rollback(True)
    assert texts() == ["committed", "1", "2"]


def test_many_jobs_run_too(committed: None) -> None:
    job_handler("tests/nothing")(lambda payload: None)
    enqueue_many([("tests/nothing", number) for number in range(20)])
    assert ArchivedJob.objects.count() == 20


def test_scheduled_jobs_and_retries_wait_and_what_is_due_again_at_once_does_not(committed: None) -> None:
    job_handler("tests/later", retry_strategy=RetryStrategy(retries=1, delays=[60]))(lambda payload: 1 / 0)
    job_handler("tests/again", retry_strategy=RetryStrategy(retries=2))(lambda payload: 1 / 0)
    enqueue("tests/later", process_in=timedelta(hours=1))
    enqueue("tests/later")
    assert sorted(job.attempts for job in Job.objects.all()) == [0, 1]
    enqueue("tests/again")
    assert ArchivedJob.objects.get(job_type="tests/again").attempts == 3


def test_an_error_is_logged_and_not_the_callers(committed: None, caplog: pytest.LogCaptureFixture) -> None:
    job_handler("tests/fail")(lambda payload: 1 / 0)
    enqueue("tests/fail")
    assert ArchivedJob.objects.get().status == "failure"
    assert "ZeroDivisionError" in caplog.text


def test_only_the_job_itself_runs(committed: None, write: Any) -> None:
    with override_settings(PROLETARIAN={}):
        enqueue("tests/write", "from before")
    enqueue("tests/write", "new")
    assert texts() == ["new"]


def test_jobs_that_jobs_enqueue_run_when_those_are_done(committed: None, write: Any) -> None:
    @job_handler("tests/outer", atomic=True)
    def outer(payload: object) -> None:
        enqueue("tests/write", "inner")
        enqueue("tests/write", ArchivedJob.objects.count())

    enqueue("tests/outer")
    assert texts() == ["inner", "0"]
    assert ArchivedJob.objects.count() == 3


def test_async_handlers_may_enqueue_async_handlers(committed: None) -> None:
    @job_handler("tests/inner")
    async def inner(payload: str) -> None:
        await Entry.objects.acreate(text=payload)

    @job_handler("tests/outer")
    async def outer(payload: str) -> None:
        await aenqueue("tests/inner", "inner")
        await Entry.objects.acreate(text=payload)

    async_to_sync(aenqueue)("tests/outer", "outer")
    assert texts() == ["inner", "outer"]


def test_a_worker_that_runs_beside_finds_nothing_left(committed: None, write: Any) -> None:
    enqueue("tests/write", "once")
    worker = create_queue_worker(drain=True)
    worker.start()
    assert worker.join(60)
    assert texts() == ["once"]


class InATestCase(TestCase):
    def setUp(self) -> None:
        job_handler("tests/write")(lambda payload: Entry.objects.create(text=str(payload)) and None)

    def test_jobs_run_where_on_commit_callbacks_are_captured(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            enqueue("tests/write", "written")
            assert texts() == []
        assert texts() == ["written"]
        assert connection.in_atomic_block

    def test_and_not_where_they_are_not(self) -> None:
        enqueue("tests/write", "waits")
        assert texts() == []
        assert len(enqueued_jobs()) == 1

    def test_run_jobs_runs_each_of_them_once(self) -> None:
        job_handler("tests/chain")(lambda payload: enqueue("tests/write", "chained") and None)
        enqueue("tests/chain")
        run_jobs()
        assert texts() == ["chained"]

    def test_jobs_of_jobs_run_too(self) -> None:
        job_handler("tests/chain")(lambda payload: enqueue("tests/write", "chained") and None)
        with self.captureOnCommitCallbacks(execute=True):
            enqueue("tests/chain")
        assert texts() == ["chained"]
