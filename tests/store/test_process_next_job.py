"""One job from claim to commit, with handlers of every kind, on real PostgreSQL with real commits."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import IntegrityError, connection, connections, transaction

from django_proletarian import (
    Job,
    JobInterrupted,
    NewJob,
    RetryStrategy,
    conf,
    create_queue_worker,
    enqueue,
    enqueue_many,
    job_handler,
    names,
    signals,
    stop_requested,
)
from django_proletarian.connection import ClaimConnection
from django_proletarian.interrupting import Stop
from django_proletarian.log import EventLog
from django_proletarian.polling import JobBudget
from django_proletarian.store import ClaimBounds
from django_proletarian.worker import process_jobs, process_next_job
from django_proletarian.worker_options import WorkerOptions
from tests.app.models import Child, Entry, UniqueEntry
from tests.conftest import eventually, rows
from tests.live.events import Events, told

QUEUE = "proletarian/default"

plain_or_atomic = pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])


def options(**changes: Any) -> WorkerOptions:
    return conf.worker_options(database="default", queues=None, **changes)


def run(claim: ClaimConnection, stop: Stop | None = None, **changes: Any) -> bool | None:
    """Process the next job, as a worker thread does."""
    return process_next_job(options(**changes), claim, QUEUE, stop=stop)


def archived() -> list[tuple[str, int]]:
    """Status and attempts of the archive's rows."""
    return [(row["status"], row["attempts"]) for row in rows("proletarian.archived_job", "status, attempts")]


def queued() -> list[tuple[str, int]]:
    """Type and attempts of the rows in the queue that nobody has locked."""
    # On the handlers' connection, which is not the claim's.
    with connection.cursor() as cursor:
        cursor.execute("SELECT job_type, attempts FROM proletarian.job ORDER BY process_at FOR UPDATE SKIP LOCKED")
        return cursor.fetchall()


def texts() -> list[str]:
    return sorted(Entry.objects.values_list("text", flat=True))


@pytest.fixture
def events() -> Any:
    with told() as events:
        yield events


@plain_or_atomic
def test_a_handler_enqueues_jobs_with_ids_of_its_own(claim: ClaimConnection, atomic: bool) -> None:
    jobs = [NewJob("tests/many", job_id=uuid4()) for _ in range(2)]
    job_handler("tests/outer", atomic=atomic)(lambda payload: enqueue_many(jobs) and None)
    enqueue("tests/outer")

    assert run(claim) is True

    assert archived() == [(":success", 1)]
    assert len(queued()) == 2


# -- What it returns -------------------------------------------------------------------------------------------------


def test_nothing_due_is_none(claim: ClaimConnection) -> None:
    assert run(claim) is None


@plain_or_atomic
def test_a_job_that_returns_is_archived_as_a_success(claim: ClaimConnection, atomic: bool) -> None:
    job_handler("tests/write", atomic=atomic)(lambda payload: Entry.objects.create(text=payload))
    enqueue("tests/write", "written")

    assert run(claim) is True

    assert archived() == [(":success", 1)]
    assert queued() == []
    assert texts() == ["written"]
    assert run(claim) is None


@plain_or_atomic
def test_a_job_that_raises_is_archived_as_a_failure_if_it_has_no_retries(claim: ClaimConnection, atomic: bool) -> None:
    job_handler("tests/fail", atomic=atomic)(lambda payload: 1 / 0)
    enqueue("tests/fail")

    assert run(claim) is True

    assert archived() == [(":failure", 1)]
    assert queued() == []


def test_a_coroutine_that_nobody_awaited_is_no_success(claim: ClaimConnection) -> None:
    async def write() -> None:
        raise AssertionError("nobody awaits this")

    job_handler("tests/forgot-async")(lambda payload: write())
    enqueue("tests/forgot-async")

    assert run(claim) is True

    assert archived() == [(":failure", 1)]
    [attempt] = rows("proletarian.job_attempt")
    assert "returned a coroutine, of which nothing has run" in attempt["message"]


def test_a_job_that_raises_is_tried_again_as_often_as_its_strategy_says(claim: ClaimConnection) -> None:
    attempts: list[int] = []

    @job_handler("tests/fail", retry_strategy=RetryStrategy(retries=2), advanced=True)
    def fail(job: Job) -> None:
        attempts.append(job.attempts)
        raise ValueError

    enqueue("tests/fail")
    assert [run(claim) for _ in range(4)] == [True, True, True, None]
    assert attempts == [1, 2, 3]
    assert archived() == [(":failure", 3)]


def test_a_job_without_a_handler_is_archived_as_a_failure(claim: ClaimConnection, events: Events) -> None:
    enqueue("nobody/knows-it")

    assert run(claim) is True

    assert archived() == [(":failure", 1)]
    assert 'No handler for job type "nobody/knows-it"' in str(events["handle-job-exception"][0]["exception"])


# -- Handlers and their connections ----------------------------------------------------------------------------------


@plain_or_atomic
def test_a_failed_query_in_a_block_of_its_own_may_be_swallowed(claim: ClaimConnection, atomic: bool) -> None:
    UniqueEntry.objects.create(text="taken")

    @job_handler("tests/clash", atomic=atomic)
    def clash(payload: object) -> None:
        Entry.objects.create(text="before")
        with pytest.raises(IntegrityError), transaction.atomic():
            UniqueEntry.objects.create(text="taken")
        Entry.objects.create(text="after")

    enqueue("tests/clash")
    assert run(claim) is True
    assert archived() == [(":success", 1)]
    assert texts() == ["after", "before"]


def test_a_failed_query_may_be_swallowed_without_a_block(claim: ClaimConnection) -> None:
    UniqueEntry.objects.create(text="taken")

    @job_handler("tests/clash")
    def clash(payload: object) -> None:
        with pytest.raises(IntegrityError):
            UniqueEntry.objects.create(text="taken")
        Entry.objects.create(text="after")

    enqueue("tests/clash")
    assert run(claim) is True
    assert archived() == [(":success", 1)]
    assert texts() == ["after"]


def test_a_failed_query_swallowed_without_a_block_fails_an_atomic_attempt_whole(
    claim: ClaimConnection, events: Events
) -> None:
    # As in any atomic block of Django's: PostgreSQL has given the transaction up, and a success would be a lie.
    UniqueEntry.objects.create(text="taken")

    @job_handler("tests/clash", atomic=True)
    def clash(payload: object) -> None:
        Entry.objects.create(text="before")
        with pytest.raises(IntegrityError):
            UniqueEntry.objects.create(text="taken")

    enqueue("tests/clash")
    assert run(claim) is True
    assert archived() == [(":failure", 1)]
    assert texts() == []


def test_an_error_swallowed_outside_a_block_without_savepoint_fails_an_atomic_attempt_whole(
    claim: ClaimConnection,
) -> None:
    # The database has seen no error, but Django will roll back what the handler has written.
    @job_handler("tests/careless", atomic=True)
    def careless(payload: object) -> None:
        Entry.objects.create(text="before")
        with suppress(ValueError), transaction.atomic(savepoint=False):
            raise ValueError

    enqueue("tests/careless")
    assert run(claim) is True
    assert archived() == [(":failure", 1)]
    assert texts() == []


@plain_or_atomic
def test_a_handler_may_close_all_connections(claim: ClaimConnection, atomic: bool) -> None:
    @job_handler("tests/close", atomic=atomic)
    def close(payload: object) -> None:
        Entry.objects.create(text="before")
        connections.close_all()
        Entry.objects.create(text="after")

    enqueue("tests/close")
    assert run(claim) is True
    assert archived() == [(":success", 1)]
    assert texts() == ["after", "before"]


def test_a_plain_handler_may_use_a_durable_block(claim: ClaimConnection) -> None:
    @job_handler("tests/durable")
    def durable(payload: object) -> None:
        with transaction.atomic(durable=True):
            Entry.objects.create(text="written")

    enqueue("tests/durable")
    assert run(claim) is True
    assert archived() == [(":success", 1)]
    assert texts() == ["written"]


def test_a_durable_block_in_an_atomic_handler_is_refused_as_in_any_other_block(
    claim: ClaimConnection, events: Events
) -> None:
    @job_handler("tests/durable", atomic=True)
    def durable(payload: object) -> None:
        with transaction.atomic(durable=True):
            Entry.objects.create(text="written")

    enqueue("tests/durable")
    assert run(claim) is True
    assert archived() == [(":failure", 1)]
    assert "durable" in str(events["handle-job-exception"][0]["exception"])


def test_a_transaction_left_open_by_switching_autocommit_off_ends_with_the_job(claim: ClaimConnection) -> None:
    @job_handler("tests/careless")
    def careless(payload: object) -> None:
        transaction.set_autocommit(False)
        Entry.objects.create(text="never committed")

    @job_handler("tests/next")
    def next_job(payload: object) -> None:
        assert transaction.get_autocommit()
        Entry.objects.create(text="next")

    enqueue("tests/careless")
    enqueue("tests/next")
    assert [run(claim), run(claim)] == [True, True]
    assert archived() == [(":success", 1), (":success", 1)]
    assert texts() == ["next"]


def test_a_transaction_left_open_inside_a_block_ends_with_the_job(claim: ClaimConnection) -> None:
    @job_handler("tests/careless")
    def careless(payload: object) -> None:
        transaction.atomic().__enter__()
        Entry.objects.create(text="never committed")

    @job_handler("tests/next")
    def next_job(payload: object) -> None:
        assert not connection.in_atomic_block
        Entry.objects.create(text="next")

    enqueue("tests/careless")
    enqueue("tests/next")
    assert [run(claim), run(claim)] == [True, True]
    assert archived() == [(":success", 1), (":success", 1)]
    assert texts() == ["next"]


def test_a_block_left_open_by_an_atomic_handler_does_not_reach_the_next_one(claim: ClaimConnection) -> None:
    blocks: list[int] = []

    @job_handler("tests/careless", atomic=True)
    def careless(payload: object) -> None:
        blocks.append(len(connection.savepoint_ids))
        transaction.atomic().__enter__()

    enqueue("tests/careless")
    enqueue("tests/careless")
    assert [run(claim), run(claim)] == [True, True]
    assert blocks == [1, 1]


@plain_or_atomic
def test_a_handler_may_be_a_coroutine_function(claim: ClaimConnection, atomic: bool) -> None:
    @job_handler("tests/async", atomic=atomic)
    async def write(payload: str) -> None:
        await asyncio.sleep(0)
        await Entry.objects.acreate(text=payload)

    enqueue("tests/async", "written")
    assert run(claim) is True
    assert archived() == [(":success", 1)]
    assert texts() == ["written"]


def test_an_atomic_coroutine_that_raises_leaves_nothing(claim: ClaimConnection) -> None:
    @job_handler("tests/async", atomic=True)
    async def write(payload: str) -> None:
        await Entry.objects.acreate(text=payload)
        raise ValueError

    enqueue("tests/async", "written")
    assert run(claim) is True
    assert archived() == [(":failure", 1)]
    assert texts() == []


def test_a_cancelled_coroutine_has_failed(claim: ClaimConnection) -> None:
    @job_handler("tests/async")
    async def cancel(payload: object) -> None:
        raise asyncio.CancelledError

    enqueue("tests/async")
    assert run(claim) is True
    assert archived() == [(":failure", 1)]


def test_a_job_enqueued_by_a_plain_handler_is_there_at_once_and_stays_if_it_fails(claim: ClaimConnection) -> None:
    seen: list[int] = []

    @job_handler("tests/parent")
    def parent(payload: object) -> None:
        enqueue("tests/child")
        with connections["default"].copy().cursor() as cursor:
            cursor.execute("SELECT count(*) FROM proletarian.job WHERE job_type = ':tests/child'")
            seen.append(cursor.fetchone()[0])
            cursor.db.close()
        raise ValueError

    enqueue("tests/parent")
    assert run(claim) is True
    assert seen == [1]
    assert archived() == [(":failure", 1)]
    assert queued() == [(":tests/child", 0)]


def test_a_job_enqueued_by_an_atomic_handler_goes_with_it(claim: ClaimConnection) -> None:
    @job_handler("tests/parent", atomic=True, retry_strategy=RetryStrategy(retries=1), advanced=True)
    def parent(job: Job) -> None:
        enqueue("tests/child", job.attempts)
        if job.attempts == 1:
            raise ValueError

    enqueue("tests/parent")
    assert run(claim) is True
    assert queued() == [(":tests/parent", 1)]
    assert run(claim) is True
    assert archived() == [(":success", 2)]
    assert queued() == [(":tests/child", 0)]


def test_a_retried_job_does_not_lose_its_place_to_what_it_enqueued(claim: ClaimConnection) -> None:
    @job_handler("tests/parent", retry_strategy=RetryStrategy(retries=1))
    def parent(payload: object) -> None:
        enqueue("tests/child")
        raise ValueError

    job_handler("tests/child")(lambda payload: None)
    enqueue("tests/parent")
    while run(claim):
        pass
    assert sorted(archived()) == [(":failure", 2), (":success", 1), (":success", 1)]


# -- What handlers raise ---------------------------------------------------------------------------------------------


@plain_or_atomic
@pytest.mark.parametrize("code", [None, 0, 1, "a message"])
def test_a_handler_that_exits_has_failed(claim: ClaimConnection, code: object, atomic: bool) -> None:
    job_handler("tests/exit", atomic=atomic)(lambda payload: sys.exit(code))
    enqueue("tests/exit")

    assert run(claim) is True

    assert archived() == [(":failure", 1)]


class Unspeakable(Exception):
    """An exception that can't be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_an_exception_that_can_not_be_shown_fails_its_job_like_any_other(claim: ClaimConnection) -> None:
    @job_handler("tests/unspeakable", retry_strategy=RetryStrategy(retries=1))
    def unspeakable(payload: object) -> None:
        raise Unspeakable

    enqueue("tests/unspeakable")
    assert [run(claim), run(claim)] == [True, True]
    assert archived() == [(":failure", 2)]


class Beyond(BaseException):
    """Neither an Exception nor one of those that mean the job."""


@plain_or_atomic
@pytest.mark.parametrize("kind", [Beyond, KeyboardInterrupt, GeneratorExit])
def test_what_is_no_exception_comes_through_and_leaves_the_row_as_it_was(
    claim: ClaimConnection, kind: type[BaseException], atomic: bool
) -> None:
    @job_handler("tests/beyond", atomic=atomic)
    def beyond(payload: object) -> None:
        Entry.objects.create(text="written")
        raise kind

    enqueue("tests/beyond")
    before = rows("proletarian.job")

    with pytest.raises(kind):
        run(claim)

    eventually(lambda: queued() == [(":tests/beyond", 0)])
    assert rows("proletarian.job") == before
    assert archived() == []
    assert texts() == ([] if atomic else ["written"])


def test_the_claim_connection_can_be_used_again_after_an_error_came_through(claim: ClaimConnection) -> None:
    failing = [True]

    @job_handler("tests/beyond")
    def beyond(payload: object) -> None:
        if failing.pop():
            failing.append(False)
            raise Beyond

    enqueue("tests/beyond")
    with pytest.raises(Beyond):
        run(claim)
    eventually(lambda: run(claim))
    assert archived() == [(":success", 1)]


# -- Callbacks, strategies and listeners that fail -------------------------------------------------------------------


def raises(*args: object) -> Any:
    raise ValueError("raised on purpose")


def exits(*args: object) -> Any:
    sys.exit("exited on purpose")


@plain_or_atomic
@pytest.mark.parametrize("callback", [raises, exits])
def test_a_failed_job_callback_that_fails_changes_nothing(
    claim: ClaimConnection, events: Events, callback: Callable[..., object], atomic: bool
) -> None:
    job_handler("tests/fail", failed_job=callback, atomic=atomic)(raises)
    enqueue("tests/fail")

    assert run(claim) is True

    assert archived() == [(":failure", 1)]
    assert len(events["failed-job-fn-error"]) == 1
    assert run(claim) is None


def test_the_failed_job_callback_gets_the_job_and_the_error_once_there_are_no_retries_left(
    claim: ClaimConnection,
) -> None:
    calls: list[tuple[int, str]] = []

    def callback(job: Job, error: BaseException) -> None:
        calls.append((job.attempts, str(error)))

    job_handler("tests/fail", failed_job=callback, retry_strategy=RetryStrategy(retries=1))(raises)
    enqueue("tests/fail")
    assert [run(claim), run(claim)] == [True, True]
    assert calls == [(2, "raised on purpose")]


def test_the_failed_job_callback_of_an_atomic_handler_writes_with_the_archive(claim: ClaimConnection) -> None:
    def callback(job: Job, error: BaseException) -> None:
        Entry.objects.create(text="told")

    @job_handler("tests/fail", failed_job=callback, atomic=True)
    def fail(payload: object) -> None:
        Entry.objects.create(text="undone")
        raise ValueError

    enqueue("tests/fail")
    assert run(claim) is True
    assert archived() == [(":failure", 1)]
    assert texts() == ["told"]


@pytest.mark.parametrize(
    "strategy",
    [
        raises,
        exits,
        lambda job, error: "nonsense",
        lambda job, error: {},
        lambda job, error: {"retries": -1},
        lambda job, error: {"retries": 2.5},
        lambda job, error: {"retries": 2, "delays": [-1]},
        lambda job, error: {"retries": 2, "delays": "soon"},
        lambda job, error: {"retries": 2, "delays": [float("nan")]},
        lambda job: None,
    ],
)
def test_a_retry_strategy_that_fails_gives_the_job_up(
    claim: ClaimConnection, events: Events, strategy: Callable[..., Any]
) -> None:
    job_handler("tests/fail", retry_strategy=strategy)(raises)
    enqueue("tests/fail")

    assert run(claim) is True

    assert archived() == [(":failure", 1)]
    assert len(events["retry-strategy-fn-error"]) == 1
    assert run(claim) is None


def test_an_unreadable_payload_does_not_keep_the_jobs_behind_it(claim: ClaimConnection, events: Events) -> None:
    job_handler("tests/write", retry_strategy=RetryStrategy(retries=5))(lambda payload: Entry.objects.create(text="1"))
    for _ in range(3):
        enqueue("tests/write")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE proletarian.job SET payload = '[\"^ ', process_at = process_at - interval '1 hour' "
            "WHERE job_id = (SELECT job_id FROM proletarian.job ORDER BY process_at LIMIT 1)"
        )

    assert [run(claim) for _ in range(4)] == [True, True, True, None]

    assert sorted(archived()) == [(":failure", 1), (":success", 1), (":success", 1)]
    assert len(texts()) == 2
    assert len(events["handle-job-exception"]) == 1


@pytest.mark.parametrize("queue_and_type", [("", ""), (":", ":"), ("plain", "plain"), ("::a", "::b/c"), ("a b", '"')])
def test_odd_names_do_not_keep_the_queue(claim: ClaimConnection, queue_and_type: tuple[str, str]) -> None:
    queue, job_type = queue_and_type
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proletarian.job VALUES (gen_random_uuid(), %s, %s, '1', 0, now(), now())", [queue, job_type]
        )
    assert process_next_job(options(), claim, names.from_stored(queue)) is True

    assert archived() == [(":failure", 1)]
    assert rows("proletarian.archived_job", "queue, job_type") == [{"queue": queue, "job_type": job_type}]


class Deaf(logging.Filter):
    """A filter with a bug."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("the filter failed")


def test_receivers_and_filters_that_raise_change_nothing(
    claim: ClaimConnection, caplog: pytest.LogCaptureFixture
) -> None:
    def receiver(**data: object) -> None:
        raise RuntimeError("the receiver failed")

    all_signals = [signal for signal in vars(signals).values() if isinstance(signal, signals.Signal)]
    loggers = [logging.getLogger(f"django_proletarian.{name}") for name in ("worker", "retry")]
    deaf = Deaf()
    job_handler("tests/pass")(lambda payload: Entry.objects.create(text="written"))
    job_handler("tests/fail", retry_strategy=RetryStrategy(retries=1))(raises)
    enqueue("tests/pass")
    enqueue("tests/fail")
    for signal in all_signals:
        signal.connect(receiver)
    for logger in loggers:
        logger.addFilter(deaf)
    try:
        assert [run(claim) for _ in range(4)] == [True, True, True, None]
    finally:
        for signal in all_signals:
            signal.disconnect(receiver)
        for logger in loggers:
            logger.removeFilter(deaf)
    assert sorted(archived()) == [(":failure", 2), (":success", 1)]
    assert texts() == ["written"]


# -- atomic=True -----------------------------------------------------------------------------------------------------


def test_an_atomic_attempt_that_raises_leaves_nothing_but_its_count(claim: ClaimConnection) -> None:
    @job_handler("tests/write", atomic=True, retry_strategy=RetryStrategy(retries=1), advanced=True)
    def write(job: Job) -> None:
        Entry.objects.create(text=f"attempt {job.attempts}")
        if job.attempts == 1:
            raise ValueError

    enqueue("tests/write")
    assert run(claim) is True
    assert texts() == []
    assert queued() == [(":tests/write", 1)]

    assert run(claim) is True
    assert texts() == ["attempt 2"]
    assert archived() == [(":success", 2)]


def test_an_atomic_handlers_writes_and_the_archive_are_seen_together(claim: ClaimConnection) -> None:
    seen: list[tuple[int, int]] = []  # written by the watching thread until `done`, read by the test after it
    watching, done = threading.Event(), threading.Event()

    def watch() -> None:
        with connection.cursor() as cursor:
            while not done.is_set():
                # One statement, one snapshot.
                cursor.execute(
                    "SELECT (SELECT count(*) FROM app_entry), (SELECT count(*) FROM proletarian.archived_job)"
                )
                seen.append(cursor.fetchone())
                watching.set()
        connection.close()

    job_handler("tests/write", atomic=True)(lambda payload: Entry.objects.create(text="written"))
    for _ in range(50):
        enqueue("tests/write")
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert watching.wait(20)
        while run(claim):
            pass
        last = len(seen)
        eventually(lambda: len(seen) > last + 1)
    finally:
        done.set()
        watcher.join()
    assert seen[0] == (0, 0)
    assert seen[-1] == (50, 50)
    assert all(written == finished for written, finished in seen)


def test_what_an_atomic_handler_leaves_for_after_the_commit_runs_after_it(claim: ClaimConnection) -> None:
    seen: list[list[tuple[str, int]]] = []

    @job_handler("tests/later", atomic=True)
    def later(payload: object) -> None:
        transaction.on_commit(lambda: seen.append(archived()))
        seen.append([])

    enqueue("tests/later")
    assert run(claim) is True
    assert seen == [[], [(":success", 1)]]


def test_what_a_failed_atomic_attempt_left_for_after_the_commit_is_dropped(claim: ClaimConnection) -> None:
    calls: list[int] = []

    @job_handler("tests/later", atomic=True, retry_strategy=RetryStrategy(retries=1), advanced=True)
    def later(job: Job) -> None:
        transaction.on_commit(lambda: calls.append(job.attempts))
        with transaction.atomic():
            transaction.on_commit(lambda: calls.append(-1))
            transaction.set_rollback(True)
        if job.attempts == 1:
            raise ValueError

    enqueue("tests/later")
    assert run(claim) is True
    assert calls == []
    assert run(claim) is True
    assert calls == [2]


@pytest.mark.parametrize("fails", [raises, exits])
def test_an_error_after_the_commit_is_told_and_changes_nothing(
    claim: ClaimConnection, events: Events, fails: Callable[[], object]
) -> None:
    calls: list[str] = []

    @job_handler("tests/later", atomic=True)
    def later(payload: object) -> None:
        transaction.on_commit(fails)
        transaction.on_commit(lambda: calls.append("the one after it"))

    enqueue("tests/later")
    assert run(claim) is True
    assert archived() == [(":success", 1)]
    assert calls == ["the one after it"]
    assert len(events["on-commit-exception"]) == 1


def test_what_is_enqueued_after_the_commit_is_committed_by_itself(claim: ClaimConnection) -> None:
    @job_handler("tests/later", atomic=True)
    def later(payload: object) -> None:
        transaction.on_commit(lambda: enqueue("tests/child"))

    enqueue("tests/later")
    assert run(claim) is True
    assert queued() == [(":tests/child", 0)]


def test_a_foreign_key_that_would_fail_at_commit_fails_the_attempt_alone(
    claim: ClaimConnection, events: Events
) -> None:
    @job_handler("tests/orphan", atomic=True, retry_strategy=RetryStrategy(retries=1))
    def orphan(payload: object) -> None:
        Entry.objects.create(text="written")
        Child.objects.create(entry_id=0)

    enqueue("tests/orphan")
    assert [run(claim), run(claim), run(claim)] == [True, True, None]
    assert archived() == [(":failure", 2)]
    assert texts() == []
    assert isinstance(events["handle-job-exception"][0]["exception"], IntegrityError)


def test_an_atomic_handler_may_break_a_foreign_key_for_a_moment(claim: ClaimConnection) -> None:
    @job_handler("tests/adopt", atomic=True)
    def adopt(payload: object) -> None:
        Child.objects.create(entry_id=4711)
        Entry.objects.create(id=4711, text="written")

    enqueue("tests/adopt")
    assert run(claim) is True
    assert archived() == [(":success", 1)]
    assert Child.objects.get().entry_id == 4711


def test_a_job_after_an_atomic_one_has_its_own_connection_back(claim: ClaimConnection) -> None:
    pids: list[int] = []

    def note_pid(payload: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.append(cursor.fetchone()[0])

    job_handler("tests/atomic", atomic=True)(note_pid)
    job_handler("tests/plain")(note_pid)
    enqueue("tests/atomic")
    enqueue("tests/plain")
    assert [run(claim), run(claim)] == [True, True]
    assert pids[0] != pids[1]
    assert claim.send("SELECT pg_backend_pid()") == [(str(pids[0]),)]


# -- Stops -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def stop() -> Stop:
    return Stop()


@plain_or_atomic
def test_an_interrupted_job_stays_queued_with_attempts_unchanged(
    claim: ClaimConnection, events: Events, stop: Stop, atomic: bool
) -> None:
    @job_handler("tests/stop", atomic=atomic, retry_strategy=RetryStrategy(retries=1))
    def interrupted(payload: object) -> None:
        Entry.objects.create(text="written")
        stop.set()
        assert stop_requested()
        raise JobInterrupted

    enqueue("tests/stop")
    before = rows("proletarian.job")
    assert run(claim, stop) is False
    assert rows("proletarian.job") == before
    assert queued() == [(":tests/stop", 0)]
    assert archived() == []
    assert texts() == ([] if atomic else ["written"])
    assert events.names == ["handling-job", "job-interrupted"]


@pytest.mark.parametrize("fails", [raises, exits])
def test_a_job_that_raises_while_stopping_stays_queued_with_attempts_unchanged(
    claim: ClaimConnection, events: Events, stop: Stop, fails: Callable[[], object]
) -> None:
    @job_handler("tests/stop", retry_strategy=RetryStrategy(retries=1))
    def disturbed(payload: object) -> None:
        stop.set()
        fails()

    enqueue("tests/stop")
    before = rows("proletarian.job")
    assert run(claim, stop) is False
    assert rows("proletarian.job") == before
    assert queued() == [(":tests/stop", 0)]
    assert events.names == ["handling-job", "handle-job-exception-with-interrupt"]


def test_a_job_that_returns_while_stopping_is_archived_and_is_the_last(claim: ClaimConnection, stop: Stop) -> None:
    job_handler("tests/stop")(lambda payload: stop.set())
    enqueue("tests/stop")
    assert run(claim, stop) is False
    assert archived() == [(":success", 1)]


def test_a_coroutine_may_be_interrupted(claim: ClaimConnection, stop: Stop) -> None:
    @job_handler("tests/stop")
    async def interrupted(payload: object) -> None:
        stop.set()
        assert stop_requested()
        raise JobInterrupted

    enqueue("tests/stop")
    assert run(claim, stop) is False
    assert queued() == [(":tests/stop", 0)]


def test_outside_a_worker_no_stop_is_requested() -> None:
    assert stop_requested() is False


def test_a_claim_lost_just_before_an_atomic_handler_leaves_the_threads_own_connection_in_place(
    claim: ClaimConnection,
) -> None:
    ran: list[object] = []
    job_handler("tests/atomic", atomic=True)(ran.append)
    enqueue("tests/atomic", 1)
    own = connections["default"]

    def end_claim() -> None:
        [(pid,)] = claim.send("SELECT pg_backend_pid()")
        with connection.cursor() as cursor:
            # With a timeout it waits until the server's end is gone.
            cursor.execute("SELECT pg_terminate_backend(%s, 20000)", [int(pid)])

    options = create_queue_worker().options
    with pytest.raises(psycopg.OperationalError):
        process_jobs(
            options,
            claim,
            ["proletarian/default"],
            stop=Stop(),
            log=EventLog(),
            budget=JobBudget(1),
            bounds=ClaimBounds(),
            on_claimed=end_claim,
        )
    assert connections["default"] is own
    assert ran == []
    assert process_next_job(options, claim, "proletarian/default")
    assert ran == [1]
    assert len(rows("proletarian.archived_job", "job_id")) == 1
