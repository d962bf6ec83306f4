"""run_jobs and perform_job: the worker's code on the test's own connection."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from django_proletarian import (
    Job,
    JobInterrupted,
    JobTimeout,
    NoHandler,
    PayloadEncodeError,
    RetryStrategy,
    enqueue,
    job_handler,
)
from django_proletarian.connection import ClaimConnection
from django_proletarian.models import ArchivedJob, JobAttempt
from django_proletarian.models import Job as QueuedJob
from django_proletarian.testing import assert_enqueued, capture_jobs, perform_job, run_jobs
from tests.app.models import Child, Entry, UniqueEntry

plain_or_atomic = pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])


def write(payload: object) -> None:
    Entry.objects.create(text=str(payload))


def texts() -> list[str]:
    return list(Entry.objects.order_by("pk").values_list("text", flat=True))


def outcomes(**options: Any) -> list[str]:
    return [run.outcome for run in run_jobs(raise_errors=False, **options)]


# -- Within a transaction --------------------------------------------------------------------------------------------


@plain_or_atomic
@pytest.mark.django_db
def test_a_job_of_the_tests_transaction_runs_and_is_archived_in_it(atomic: bool) -> None:
    job_handler("tests/write", atomic=atomic)(write)
    job_id = enqueue("tests/write", "written")

    [run] = run_jobs()

    assert (run.job.job_id, run.job.job_type, run.job.attempts, run.outcome) == (job_id, "tests/write", 1, "success")
    assert texts() == ["written"]
    archived = ArchivedJob.objects.get(job_id=job_id)
    assert (archived.status, archived.attempts) == ("success", 1)
    assert not QueuedJob.objects.exists()
    assert connection.in_atomic_block


@pytest.mark.django_db
def test_the_highest_priority_runs_first_and_a_queue_has_all_its_priorities() -> None:
    job_handler("tests/write")(write)
    for priority in (-1, 0, 7):
        enqueue("tests/write", priority, queue="mail", priority=priority)
    enqueue("tests/write", "another", queue="other")
    run_jobs(queue="mail")
    assert texts() == ["7", "0", "-1"]
    run_jobs()
    assert texts()[3:] == ["another"]


@pytest.mark.django_db
def test_what_a_job_did_is_undone_with_the_block_around_it() -> None:
    job_handler("tests/write")(write)
    with transaction.atomic():
        enqueue("tests/write", "undone")
        run_jobs()
        transaction.set_rollback(True)
    assert texts() == []
    assert not ArchivedJob.objects.exists()


@pytest.mark.django_db
def test_jobs_see_what_the_test_has_not_committed() -> None:
    entry = Entry.objects.create(text="the test's")
    job_handler("tests/find")(lambda pk: Entry.objects.get(pk=pk).text)
    enqueue("tests/find", entry.pk)
    assert [run.result for run in run_jobs()] == ["the test's"]


@pytest.mark.django_db
def test_jobs_of_every_queue_run_or_of_the_one_named() -> None:
    job_handler("tests/write")(write)
    for queue in ("proletarian/default", "billing", "mail"):
        enqueue("tests/write", queue, queue=queue)
    assert [run.job.queue for run in run_jobs("billing")] == ["billing"]
    assert [run.job.queue for run in run_jobs()] == ["proletarian/default", "mail"]


@pytest.mark.django_db
def test_jobs_that_jobs_enqueue_run_too_unless_only_those_there_are_wanted() -> None:
    @job_handler("tests/chain")
    def chain(left: int) -> None:
        if left:
            enqueue("tests/chain", left - 1)

    enqueue("tests/chain", 2)
    assert [run.job.payload for run in run_jobs(until_empty=False)] == [2]
    assert [run.job.payload for run in run_jobs()] == [1, 0]


@pytest.mark.django_db
def test_a_job_that_enqueues_itself_for_ever_is_told_of() -> None:
    job_handler("tests/endless")(lambda payload: enqueue("tests/endless"))
    enqueue("tests/endless")
    with pytest.raises(RuntimeError, match="has run 5 jobs, and there are more: tests/endless was the last"):
        run_jobs(most=5)


@pytest.mark.django_db
def test_jobs_that_are_not_due_run_by_the_time_that_is_given() -> None:
    job_handler("tests/write")(write)
    enqueue("tests/write", "later", process_in=timedelta(days=2))
    assert run_jobs() == []
    assert run_jobs(now=timezone.now() + timedelta(days=1)) == []

    then = timezone.now() + timedelta(days=3)
    assert len(run_jobs(now=then)) == 1
    assert ArchivedJob.objects.get().finished_at == then


@pytest.mark.django_db
@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), "2026-01-01"])  # as somebody may write
def test_a_time_without_a_zone_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="not an aware datetime"):
        run_jobs(now=wrong)


@pytest.mark.django_db
def test_an_errors_retry_counts_from_the_time_that_is_given() -> None:
    job_handler("tests/fail", retry_strategy=RetryStrategy(retries=1, delays=[60]))(lambda payload: 1 / 0)
    enqueue("tests/fail")
    then = datetime(2036, 1, 1, tzinfo=UTC)

    [run] = run_jobs(now=then, raise_errors=False)

    assert (run.outcome, run.retry_in) == ("retry", timedelta(seconds=60))
    assert isinstance(run.error, ZeroDivisionError)
    assert QueuedJob.objects.get().process_at == then + timedelta(seconds=60)
    assert outcomes(now=then + timedelta(seconds=59)) == []
    assert outcomes(now=then + timedelta(seconds=60)) == ["failure"]
    assert [attempt.outcome for attempt in JobAttempt.objects.order_by("attempt_id")] == ["retry", "failure"]


@pytest.mark.django_db
def test_the_first_error_is_raised_when_its_job_is_settled() -> None:
    job_handler("tests/fail")(lambda payload: 1 / 0)
    enqueue("tests/fail")
    enqueue("tests/fail")
    with pytest.raises(ZeroDivisionError) as caught:
        run_jobs()
    assert "Raised by job tests/fail, attempt 1; outcome: failure." in caught.value.__notes__[0]
    assert [job.status for job in ArchivedJob.objects.all()] == ["failure"]
    assert outcomes() == ["failure"]


@pytest.mark.django_db
def test_a_job_without_a_handler_is_told_of() -> None:
    enqueue("tests/nobody")
    with pytest.raises(NoHandler, match='No handler for job type "tests/nobody"'):
        run_jobs()


@pytest.mark.django_db
def test_an_error_in_a_callback_which_a_worker_only_logs_is_raised() -> None:
    def broken(job: Job, error: BaseException) -> None:
        raise LookupError("in the callback")

    job_handler("tests/fail", failed_job=broken)(lambda payload: 1 / 0)
    enqueue("tests/fail")
    with pytest.raises(LookupError, match="in the callback") as caught:
        run_jobs()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.django_db
def test_a_job_that_gives_up_stays_in_the_queue_and_is_tried_once() -> None:
    @job_handler("tests/give-up")
    def give_up(payload: object) -> None:
        raise JobInterrupted

    job_handler("tests/write")(write)
    enqueue("tests/give-up")
    enqueue("tests/write")
    assert outcomes() == ["interrupted", "success"]
    assert QueuedJob.objects.get().attempts == 0


@plain_or_atomic
@pytest.mark.django_db
def test_a_time_limit_holds_and_leaves_the_tests_connection_open(atomic: bool) -> None:
    @job_handler("tests/endless", time_limit=0.05, atomic=atomic)
    def endless(payload: object) -> None:
        for _ in range(10**12):
            pass

    write("the test's")
    enqueue("tests/endless")
    with pytest.raises(JobTimeout):
        run_jobs()
    enqueue("tests/endless")
    assert outcomes() == ["failure"]
    assert texts() == ["the test's"]
    assert [job.status for job in ArchivedJob.objects.all()] == ["failure"] * 2


@pytest.mark.django_db(databases=["default", "other"])
def test_another_database_is_run_where_it_is_named() -> None:
    job_handler("tests/write", atomic=True)(lambda text: Entry.objects.using("other").create(text=text))
    enqueue("tests/write", "there", using="other")
    assert run_jobs() == []
    assert_enqueued("tests/write", using="other")
    with capture_jobs(using="other") as jobs:
        assert len(run_jobs(using="other")) == 1
    assert jobs == []
    assert [entry.text for entry in Entry.objects.using("other")] == ["there"]
    assert texts() == []


# -- Errors of the database ------------------------------------------------------------------------------------------


@plain_or_atomic
@pytest.mark.django_db
def test_an_error_of_the_database_leaves_the_tests_transaction_whole(atomic: bool) -> None:
    UniqueEntry.objects.create(text="once")
    job_handler("tests/twice", atomic=atomic)(lambda payload: UniqueEntry.objects.create(text="once"))
    enqueue("tests/twice")
    with pytest.raises(IntegrityError):
        run_jobs()
    assert UniqueEntry.objects.count() == 1
    assert [job.status for job in ArchivedJob.objects.all()] == ["failure"]


@pytest.mark.django_db
@pytest.mark.parametrize(("atomic", "left"), [(False, ["written"]), (True, [])], ids=["plain", "atomic"])
def test_what_a_handler_wrote_before_it_raised_stays_unless_it_is_atomic(atomic: bool, left: list[str]) -> None:
    @job_handler("tests/write-and-raise", atomic=atomic)
    def write_and_raise(payload: object) -> None:
        write("written")
        raise ValueError

    enqueue("tests/write-and-raise")
    assert outcomes() == ["failure"]
    assert texts() == left


@pytest.mark.django_db
def test_a_swallowed_error_that_broke_the_transaction_is_no_success() -> None:
    @job_handler("tests/swallow")
    def swallow(payload: object) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        except Exception:
            pass

    enqueue("tests/swallow")
    with pytest.raises(TransactionManagementError, match="Put what may fail into"):
        run_jobs()
    assert [job.status for job in ArchivedJob.objects.all()] == ["failure"]


@pytest.mark.django_db
def test_a_violated_foreign_key_fails_an_atomic_handler_and_nothing_else() -> None:
    job_handler("tests/orphan", atomic=True)(lambda payload: Child.objects.create(entry_id=-1))
    enqueue("tests/orphan")
    with pytest.raises(IntegrityError, match="foreign key"):
        run_jobs()
    assert not Child.objects.exists()


@pytest.mark.django_db
def test_an_exception_that_is_no_error_puts_the_job_back_as_it_was() -> None:
    @job_handler("tests/interrupt")
    def interrupt(payload: object) -> None:
        write("undone")
        raise KeyboardInterrupt

    enqueue("tests/interrupt")
    with pytest.raises(KeyboardInterrupt):
        run_jobs()
    assert QueuedJob.objects.get().attempts == 0
    assert texts() == []


@pytest.mark.django_db
def test_a_transaction_that_is_broken_already_is_not_used() -> None:
    enqueue("tests/nobody")
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError, match="An error occurred in the current transaction"):
            run_jobs()


# -- What is done on commit ------------------------------------------------------------------------------------------


@plain_or_atomic
@pytest.mark.django_db
def test_on_commit_callbacks_of_a_handler_run_and_those_of_the_test_do_not(atomic: bool) -> None:
    @job_handler("tests/on-commit", atomic=atomic)
    def on_commit(payload: object) -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: transaction.on_commit(lambda: write("the handler's")))

    transaction.on_commit(lambda: write("the test's"))
    enqueue("tests/on-commit")
    run_jobs()
    assert texts() == ["the handler's"]
    assert len(connection.run_on_commit) == 1


@pytest.mark.django_db
def test_an_error_on_commit_is_the_handlers_or_told_of_where_that_is_over() -> None:
    def schedule(payload: object) -> None:
        transaction.on_commit(lambda: 1 / 0)

    job_handler("tests/plain")(schedule)
    job_handler("tests/atomic", atomic=True)(schedule)
    enqueue("tests/plain")
    with pytest.raises(ZeroDivisionError):
        run_jobs()
    enqueue("tests/atomic")
    with pytest.raises(ZeroDivisionError):
        run_jobs()
    assert sorted(job.status for job in ArchivedJob.objects.all()) == ["failure", "success"]


@pytest.mark.django_db
def test_a_robust_callback_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    job_handler("tests/robust")(lambda payload: transaction.on_commit(lambda: 1 / 0, robust=True))
    enqueue("tests/robust")
    assert [run.outcome for run in run_jobs()] == ["success"]
    assert "on_commit callback" in caplog.text


# -- Async -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_async_handlers_see_the_tests_rows() -> None:
    @job_handler("tests/async")
    async def count(payload: object) -> int:
        await asyncio.sleep(0)
        return await Entry.objects.acount()

    write("the test's")
    enqueue("tests/async")
    assert [run.result for run in run_jobs()] == [1]


class AsyncTests(TestCase):
    async def test_jobs_run_in_an_async_test(self) -> None:
        @job_handler("tests/async-write")
        async def awrite(payload: str) -> None:
            await Entry.objects.acreate(text=payload)

        await sync_to_async(enqueue)("tests/async-write", "written")
        await sync_to_async(run_jobs)()
        assert [entry.text async for entry in Entry.objects.all()] == ["written"]


# -- Queries ---------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_only_the_handlers_own_queries_are_counted(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    job_handler("tests/write")(write)
    enqueue("tests/write", 1)
    enqueue("tests/write", 2)
    with django_assert_num_queries(2):
        run_jobs()


# -- With real commits -----------------------------------------------------------------------------------------------


@plain_or_atomic
def test_outside_a_transaction_jobs_are_committed(committed: None, atomic: bool) -> None:
    job_handler("tests/write", atomic=atomic)(write)
    enqueue("tests/write", "written")

    assert [run.outcome for run in run_jobs()] == ["success"]

    with ClaimConnection("default", "tests-other") as other:
        [(count,)] = other.send("SELECT count(*) FROM proletarian.archived_job")
    assert (count, texts()) == ("1", ["written"])
    assert not connection.in_atomic_block


def test_outside_a_transaction_a_failed_statement_harms_nothing_as_in_production(committed: None) -> None:
    @job_handler("tests/swallow")
    def swallow(payload: object) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        except Exception:
            write("after the error")

    enqueue("tests/swallow")
    assert [run.outcome for run in run_jobs()] == ["success"]
    assert texts() == ["after the error"]


def test_a_job_that_another_worker_runs_is_left_alone(committed: None) -> None:
    job_handler("tests/write")(write)
    enqueue("tests/write")
    with ClaimConnection("default", "tests-other") as other:
        other.send(other.begin(), "SELECT 1 FROM proletarian.job FOR UPDATE")
        assert run_jobs() == []
        other.send("COMMIT")
    assert len(run_jobs()) == 1


# -- perform_job -----------------------------------------------------------------------------------------------------


def test_a_handler_is_performed_without_any_database() -> None:
    @job_handler("tests/double")
    def double(payload: dict[str, int]) -> int:
        return payload["n"] * 2

    assert perform_job(double, {"n": 4}) == 8
    assert perform_job("tests/double", {"n": 5}) == 10


def test_a_handler_is_performed_without_any_database_although_an_earlier_test_has_left_it_open(
    committed: None, django_db_blocker: Any
) -> None:
    connection.ensure_connection()
    with django_db_blocker.block():
        assert perform_job(job_handler("tests/echo")(lambda payload: payload), 1) == 1
    assert connection.connection is not None


def test_the_payload_comes_as_a_row_would_give_it() -> None:
    handler = job_handler("tests/echo")(lambda payload: payload)
    assert perform_job(handler, {"pair": (1, 2), "at": datetime(2026, 1, 1, 0, 0, 0, 1999, tzinfo=UTC)}) == {
        "pair": [1, 2],
        "at": datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
    }
    with pytest.raises(PayloadEncodeError):
        perform_job(handler, {"what": object()})


def test_an_advanced_handler_gets_its_attempts_and_its_queue() -> None:
    handler = job_handler("tests/job", advanced=True, queue="billing")(
        lambda job: (job.attempts, job.queue, job.payload)
    )
    assert perform_job(handler, "x", attempts=3) == (3, "billing", "x")
    with pytest.raises(ValueError, match="attempts is 0, which is below 1"):
        perform_job(handler, attempts=0)


def test_what_the_handler_raises_comes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        perform_job(job_handler("tests/fail")(lambda payload: 1 / 0))
    with pytest.raises(NoHandler):
        perform_job("tests/nobody")


def test_an_async_handler_is_awaited() -> None:
    @job_handler("tests/async")
    async def handler(payload: object) -> object:
        await asyncio.sleep(0)
        return payload

    assert perform_job(handler, "awaited") == "awaited"


@pytest.mark.django_db
@plain_or_atomic
def test_a_performed_handler_writes_in_the_tests_transaction(atomic: bool) -> None:
    @job_handler("tests/write", atomic=atomic)
    def handler(payload: object) -> None:
        write(payload)
        transaction.on_commit(lambda: write("on commit"))

    perform_job(handler, "written")
    assert texts() == ["written", "on commit"]


def test_an_atomic_handler_gets_its_transaction_where_there_is_none(committed: None) -> None:
    @job_handler("tests/atomic", atomic=True)
    def handler(payload: object) -> None:
        write("undone")
        assert connection.in_atomic_block
        raise LookupError

    with pytest.raises(LookupError):
        perform_job(handler)
    assert texts() == []
