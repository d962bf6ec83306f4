"""A real worker on threads, and empty tables for tests with real commits."""

from __future__ import annotations

import threading

import psycopg
import pytest
from django.db import connection
from django.test import TestCase, TransactionTestCase

from django_proletarian import enqueue, job_handler
from django_proletarian.models import ArchivedJob, Job
from django_proletarian.testing import ProletarianTestMixin, empty_tables_around, live_worker
from tests.app.models import Entry


def test_a_live_worker_runs_jobs_while_the_test_goes_on(committed: None) -> None:
    job_handler("tests/write")(lambda payload: Entry.objects.create(text=payload))
    with live_worker("mail", threads=2) as worker:
        job_id = enqueue("tests/write", "written", queue="mail")
        assert worker.wait_for(job_id).status == "success"
        enqueue("tests/write", "too", queue="mail")
        worker.wait_until_empty()
    assert {entry.text for entry in Entry.objects.all()} == {"written", "too"}
    assert not any(thread.name.startswith("proletarian[mail]") for thread in threading.enumerate())


def test_waiting_in_vain_tells_what_is_there(committed: None) -> None:
    with live_worker("mail") as worker:
        job_id = enqueue("tests/write", "x")
        with pytest.raises(TimeoutError) as caught:
            worker.wait_for(job_id, timeout=0.1)
        assert str(caught.value) == (
            f"After 0.1 seconds job {job_id} is not archived. The worker is on mail; in the queue: tests/write on "
            "proletarian/default after 0 attempts."
        )


@pytest.mark.django_db
def test_a_live_worker_is_refused_where_nothing_is_committed() -> None:
    with pytest.raises(RuntimeError, match=r"nothing is committed.*run_jobs\(\)"), live_worker():
        pass


def test_waiting_ends_with_the_error_that_ended_the_worker(committed: None) -> None:
    def wait_beside_a_broken_worker() -> None:
        with live_worker(clock=lambda: "no date", on_polling_error=lambda error: True) as worker:
            worker.wait_for(enqueue("tests/nobody-runs-this"))

    with pytest.raises(psycopg.errors.InvalidDatetimeFormat):
        wait_beside_a_broken_worker()


def test_a_job_that_goes_on_after_the_test_is_told_of(committed: None) -> None:
    started, go = threading.Event(), threading.Event()

    @job_handler("tests/stubborn")
    def stubborn(payload: object) -> None:
        started.set()
        go.wait(60)

    def run_beside_a_worker() -> None:
        with live_worker(shutdown_timeout=0.1):
            enqueue("tests/stubborn")
            assert started.wait(60)

    try:
        with pytest.raises(RuntimeError, match=r"A job is still running, 0\.1 seconds after"):
            run_beside_a_worker()
    finally:
        go.set()
    for thread in threading.enumerate():
        if thread.name.startswith("proletarian["):
            thread.join(60)


def test_tables_are_emptied_where_commits_are_real(committed: None) -> None:
    enqueue("tests/before")
    with empty_tables_around():
        assert not Job.objects.exists()
        enqueue("tests/inside")
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_tables_are_left_alone_where_the_transaction_is_undone_anyway() -> None:
    enqueue("tests/before")
    with empty_tables_around():
        assert Job.objects.exists()


class MixinTests(ProletarianTestMixin, TestCase):
    def test_the_tools_are_methods(self) -> None:
        handler = job_handler("tests/double")(lambda payload: payload * 2)
        assert self.perform_job(handler, 4) == 8
        self.assertNotEnqueued()
        with self.captureJobs() as jobs:
            enqueue("tests/double", 2)
        assert self.assertEnqueued("tests/double", payload=2) in jobs
        with pytest.raises(AssertionError):
            self.assertNotEnqueued("tests/double")
        assert [job.payload for job in self.enqueued_jobs()] == [2]
        assert [run.result for run in self.run_jobs()] == [4]


class MixinTransactionTests(ProletarianTestMixin, TransactionTestCase):
    available_apps = ["django_proletarian", "tests.app"]  # noqa: RUF012 # as Django has it

    def test_the_tables_are_empty(self) -> None:
        assert not connection.in_atomic_block
        self.assertNotEnqueued()
        assert not ArchivedJob.objects.exists()
        enqueue("tests/left")

    test_the_tables_are_empty_again = test_the_tables_are_empty

    def test_a_live_worker(self) -> None:
        job_handler("tests/nothing")(lambda payload: None)
        with self.live_worker() as worker:
            worker.wait_for(enqueue("tests/nothing"))
