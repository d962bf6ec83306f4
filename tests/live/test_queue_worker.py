"""A queue worker in this process: start, stop, what it tells, and what it does about errors of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_proletarian import (
    JobInterrupted,
    QueueWorker,
    RetryStrategy,
    create_queue_worker,
    enqueue,
    job_handler,
    wait_or_stop,
)
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.live.events import Events
from tests.live.processes import archived, claims_of, sql, unlocked_jobs, url_of

RunWorker = Callable[..., QueueWorker]


class Beyond(BaseException):
    """What a handler may raise that is not about its job."""


class Gate:
    """Where a handler waits, whatever stop is asked, until the test opens it."""

    def __init__(self) -> None:
        self._reached, self._open = threading.Event(), threading.Event()

    def __call__(self, payload: object = None) -> None:
        self._reached.set()
        assert self._open.wait(20)

    def is_reached(self) -> None:
        assert self._reached.wait(20)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    job_handler("tests/gate")(gate.__call__)
    yield gate
    gate.open()


# -- Start and stop --------------------------------------------------------------------------------------------------


def test_it_starts_once(run_worker: RunWorker) -> None:
    worker = create_queue_worker()
    assert worker.start() is True
    assert worker.start() is None
    assert worker.stop() is True


def test_a_worker_that_was_never_started_has_nothing_to_stop(committed: None) -> None:
    assert create_queue_worker().stop() is None


def test_it_can_not_be_started_again(committed: None) -> None:
    worker = create_queue_worker()
    worker.start()
    assert worker.stop() is True
    assert worker.start() is None
    assert worker.join(0)


def test_a_second_stop_says_so_and_that_all_have_ended(committed: None, events: Events) -> None:
    worker = create_queue_worker()
    worker.start()
    assert worker.stop() is True
    assert worker.stop() is True
    # The thread may see the stop before it is told.
    assert [name for name in events.names if name != "worker-interrupted"] == [
        "shutting-down",
        "completed-shutdown",
        "already-shut-down",
    ]


def test_a_stop_returns_false_when_the_time_is_up_and_on_shutdown_is_not_called(
    run_worker: RunWorker, gate: Gate, events: Events
) -> None:
    calls: list[str] = []
    enqueue("tests/gate")
    worker = run_worker(worker_id="slow", on_shutdown=lambda: calls.append("shut down"))
    gate.is_reached()

    assert worker.stop(timeout=0.05) is False

    assert events["queue-worker-shutdown-error"][0]["still_running"] == "slow-1"
    gate.open()
    assert worker.join(20)
    assert archived(url_of()) == [(":tests/gate", ":success", 1)]
    assert calls == []
    assert "completed-shutdown" not in events.names


def test_on_shutdown_is_called_once_after_the_last_thread(run_worker: RunWorker, gate: Gate) -> None:
    alive: list[list[str]] = []

    def on_shutdown() -> None:
        alive.append([thread.name for thread in threading.enumerate() if thread.name.startswith("several-")])

    enqueue("tests/gate")
    worker = run_worker(worker_id="several", threads=4, on_shutdown=on_shutdown)
    gate.is_reached()
    gate.open()
    assert worker.stop() is True
    assert worker.stop() is True

    # The last thread is the one that calls.
    assert len(alive) == 1
    assert len(alive[0]) == 1


def test_an_on_shutdown_that_raises_is_told(run_worker: RunWorker, events: Events) -> None:
    def on_shutdown() -> None:
        raise ValueError("raised on purpose")

    worker = run_worker(on_shutdown=on_shutdown)
    assert worker.stop() is True
    assert str(events["queue-worker-shutdown-error"][0]["exception"]) == "raised on purpose"


def test_the_end_is_told_once_whatever_ended_it(run_worker: RunWorker) -> None:
    ends: list[str] = []
    worker = create_queue_worker(threads=4, drain=True)
    worker.start(on_end=lambda: ends.append("ended"))
    assert worker.join(20)
    assert ends == ["ended"]


def test_threads_are_named_after_the_worker_and_numbered(run_worker: RunWorker) -> None:
    meeting = threading.Barrier(3, timeout=20)
    names: set[str] = set()

    @job_handler("tests/meet")
    def meet(payload: object) -> None:
        names.add(threading.current_thread().name)
        meeting.wait()

    for _ in range(3):
        enqueue("tests/meet", queue="mail")
    run_worker("mail", threads=3)
    eventually(lambda: len(archived(url_of())) == 3)
    assert names == {"proletarian[mail]-1", "proletarian[mail]-2", "proletarian[mail]-3"}


def test_no_connection_is_left_when_it_has_ended(run_worker: RunWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not even one that the project keeps open between requests, or jobs. All threads share these settings.
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    pids: set[int] = set()
    meeting = threading.Barrier(3, timeout=20)

    @job_handler("tests/meet")
    def meet(payload: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.add(cursor.fetchone()[0])
        meeting.wait()

    for _ in range(3):
        enqueue("tests/meet")
    worker = run_worker(worker_id="tidy", threads=3)
    eventually(lambda: len(archived(url_of())) == 3)
    pids.update(claims_of(url_of(), "tidy"))
    assert len(pids) == 6

    assert worker.stop() is True

    eventually(lambda: not sql(url_of(), "SELECT 1 FROM pg_stat_activity WHERE pid = ANY(%s)", [list(pids)]))


# -- Ending by itself ------------------------------------------------------------------------------------------------


def test_drain_runs_what_is_due_retries_included_and_leaves_the_rest(committed: None) -> None:
    runs: list[object] = []

    @job_handler("tests/fail", retry_strategy=RetryStrategy(retries=2))
    def fail(payload: object) -> None:
        runs.append(payload)
        raise ValueError

    for number in range(10):
        enqueue("tests/fail", number)
    enqueue("tests/fail", "later", process_in=timedelta(hours=1))
    worker = create_queue_worker(drain=True, threads=4, polling_interval=1000)
    worker.start()
    assert worker.join(20)
    assert sorted(runs) == sorted([*range(10)] * 3)
    assert len(archived(url_of())) == 10
    assert unlocked_jobs(url_of()) == [(":tests/fail", 0)]


def test_max_jobs_is_never_exceeded_and_ends_threads_that_sleep_for_long(committed: None) -> None:
    job_handler("tests/pass")(lambda payload: None)
    for number in range(20):
        enqueue("tests/pass", number)
    worker = create_queue_worker(max_jobs=7, threads=4, polling_interval=1000)
    worker.start()
    assert worker.join(20)
    assert len(archived(url_of())) == 7
    assert len(unlocked_jobs(url_of())) == 13


def test_max_jobs_counts_jobs_and_not_polls(run_worker: RunWorker) -> None:
    job_handler("tests/pass")(lambda payload: None)
    worker = run_worker(worker_id="patient", max_jobs=2, threads=4)
    eventually(lambda: claims_of(url_of(), "patient"))
    for _ in range(3):
        enqueue("tests/pass")
    assert worker.join(20)
    assert len(archived(url_of())) == 2


def test_missing_tables_end_it_with_the_error(run_worker: RunWorker, settings: Any, events: Events) -> None:
    settings.PROLETARIAN = {"JOB_TABLE": "nowhere.job"}
    worker = run_worker(threads=4, polling_interval=1000)
    assert worker.join(20)
    assert isinstance(worker.error, psycopg.errors.UndefinedTable)
    assert events["job-worker-error"][0]["exception"] is worker.error
    assert "completed-shutdown" in events.names


# -- Errors of the polling loop --------------------------------------------------------------------------------------


def test_what_is_no_exception_leaves_the_row_and_the_worker_goes_on(run_worker: RunWorker, events: Events) -> None:
    attempts: list[int] = []

    @job_handler("tests/beyond", advanced=True)
    def beyond(job: Any) -> None:
        attempts.append(job.attempts)
        if len(attempts) == 1:
            raise Beyond

    worker = run_worker()
    enqueue("tests/beyond")
    eventually(lambda: archived(url_of()))
    assert attempts == [1, 1]
    assert archived(url_of()) == [(":tests/beyond", ":success", 1)]
    assert [type(data["exception"]) for data in events["job-worker-error"]] == [Beyond]
    assert worker.error is None


def test_a_true_on_polling_error_stops_all_threads(run_worker: RunWorker) -> None:
    errors: list[BaseException] = []

    @job_handler("tests/beyond")
    def beyond(payload: object) -> None:
        raise Beyond

    def on_polling_error(error: BaseException) -> bool:
        errors.append(error)
        return True

    enqueue("tests/beyond")
    before = rows("proletarian.job")
    worker = run_worker(threads=4, polling_interval=1000, on_polling_error=on_polling_error)

    assert worker.join(20)

    # A second thread may have taken the job before the stop.
    assert {type(error) for error in errors} == {Beyond}
    assert worker.error in errors
    eventually(lambda: unlocked_jobs(url_of()))
    assert rows("proletarian.job") == before


@pytest.mark.parametrize("answer", [None, False, ValueError("raised on purpose")])
def test_with_any_other_on_polling_error_it_goes_on(run_worker: RunWorker, answer: object) -> None:
    errors: list[BaseException] = []
    runs: list[object] = []

    @job_handler("tests/beyond")
    def beyond(payload: object) -> None:
        runs.append(payload)
        if len(runs) == 1:
            raise Beyond

    def on_polling_error(error: BaseException) -> object:
        errors.append(error)
        if isinstance(answer, Exception):
            raise answer
        return answer

    enqueue("tests/beyond")
    worker = run_worker(on_polling_error=on_polling_error)
    eventually(lambda: archived(url_of()))
    assert [type(error) for error in errors] == [Beyond]
    assert worker.error is None


def test_on_polling_error_may_give_up_on_a_lost_connection(run_worker: RunWorker) -> None:
    worker = run_worker(worker_id="fragile", on_polling_error=lambda error: True)
    eventually(lambda: claims_of(url_of(), "fragile"))
    sql(url_of(), "SELECT pg_terminate_backend(%s)", claims_of(url_of(), "fragile"))
    assert worker.join(20)
    assert isinstance(worker.error, psycopg.OperationalError)


# -- What it tells ---------------------------------------------------------------------------------------------------


class Records(logging.Handler):
    """Log records of this package, polling-for-jobs left out."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._all: list[logging.LogRecord] = []  # written by worker threads, read by the test

    def emit(self, record: logging.LogRecord) -> None:
        if record.event != "polling-for-jobs":  # type: ignore[attr-defined]
            self._all.append(record)

    def __iter__(self) -> Iterator[logging.LogRecord]:
        return iter(list(self._all))


@pytest.fixture
def records() -> Iterator[Records]:
    logger, records = logging.getLogger("django_proletarian"), Records()
    level = logger.level
    logger.addHandler(records)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(records)
    logger.setLevel(level)


def test_each_thing_that_happens_to_a_job_is_logged_and_signalled_with_its_context(
    run_worker: RunWorker, records: Records, events: Events
) -> None:
    job_handler("tests/pass")(lambda payload: None)
    job_handler("tests/fail", retry_strategy=RetryStrategy(retries=1))(lambda payload: 1 / 0)
    job_id = enqueue("tests/pass", "secret")
    worker = run_worker(worker_id="talker")
    eventually(lambda: len(archived(url_of())) == 1)
    failing_id = enqueue("tests/fail", "secret")
    eventually(lambda: len(archived(url_of())) == 2)
    assert worker.stop()

    # The thread may see the stop before or after it is told.
    told = [(record.event, record.levelname) for record in records if "interrupted" not in record.event]
    assert told == [
        ("handling-job", "INFO"),
        ("job-finished", "INFO"),
        ("handling-job", "INFO"),
        ("handle-job-exception", "ERROR"),
        ("retrying", "INFO"),
        ("handling-job", "INFO"),
        ("handle-job-exception", "ERROR"),
        ("not-retrying", "ERROR"),
        ("shutting-down", "INFO"),
        ("completed-shutdown", "INFO"),
    ]
    assert events.names == [record.event for record in records]

    first = next(iter(records)).__dict__
    context = {key: first[key] for key in ("queue_worker_id", "worker_thread_id", "job_id", "job_type", "attempt")}
    assert context == {
        "queue_worker_id": "talker",
        "worker_thread_id": 1,
        "job_id": job_id,
        "job_type": "tests/pass",
        "attempt": 1,
    }
    assert first["name"] == "django_proletarian.worker"
    assert {"event": "handling-job", "exception": None, **context} == events["handling-job"][0]
    assert [data["attempt"] for data in events["handling-job"]] == [1, 1, 2]
    (retrying,) = events["retrying"]
    assert (retrying["job_id"], retrying["retries_left"], retrying["attempt"]) == (failing_id, 1, 1)
    assert retrying["retry_at"].tzinfo is not None
    (not_retrying,) = events["not-retrying"]
    assert (not_retrying["retries_left"], not_retrying["attempt"]) == (0, 2)
    assert [type(data["exception"]) for data in events["handle-job-exception"]] == [ZeroDivisionError] * 2
    assert all(record.exc_info for record in records if record.event == "handle-job-exception")
    # Payloads are other people's data.
    assert not any("secret" in logging.Formatter().format(record) for record in records)


def test_an_interrupt_is_told_and_the_job_left(run_worker: RunWorker, events: Events) -> None:
    started = threading.Event()

    @job_handler("tests/stop")
    def interruptible(payload: object) -> None:
        started.set()
        if wait_or_stop(20):
            raise JobInterrupted

    enqueue("tests/stop")
    worker = run_worker()
    assert started.wait(20)
    assert worker.stop() is True
    assert events.names == [
        "handling-job",
        "shutting-down",
        "job-interrupted",
        "worker-interrupted",
        "completed-shutdown",
    ]
    assert unlocked_jobs(url_of()) == [(":tests/stop", 0)]


def test_an_error_while_stopping_is_told_and_the_job_left(run_worker: RunWorker, events: Events, gate: Gate) -> None:
    @job_handler("tests/stop")
    def fragile(payload: object) -> None:
        Entry.objects.create(text="started")
        assert wait_or_stop(20)
        raise ValueError("cut short")

    enqueue("tests/stop")
    worker = run_worker()
    eventually(Entry.objects.exists)
    assert worker.stop() is True
    (told,) = events["handle-job-exception-with-interrupt"]
    assert str(told["exception"]) == "cut short"
    assert unlocked_jobs(url_of()) == [(":tests/stop", 0)]


def test_a_job_that_returns_while_stopping_is_archived_and_no_other_is_taken(run_worker: RunWorker) -> None:
    started = threading.Event()

    @job_handler("tests/stop")
    def patient(payload: object) -> None:
        started.set()
        assert wait_or_stop(20)

    enqueue("tests/stop")
    enqueue("tests/stop")
    worker = run_worker()
    assert started.wait(20)
    assert worker.stop() is True
    assert archived(url_of()) == [(":tests/stop", ":success", 1)]
    assert unlocked_jobs(url_of()) == [(":tests/stop", 0)]
