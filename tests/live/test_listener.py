"""How an idle worker is woken: by NOTIFY, by the clock, by polling when nothing else does.

"For ever" is the idle polling interval of most tests here: what runs all the same was run because of a wake-up.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connections, transaction

from django_proletarian import QueueWorker, RetryStrategy, enqueue, enqueue_many, job_handler, listener, signals
from tests.conftest import eventually, rows
from tests.live.blocking import Blocking
from tests.live.listening import Ear, asleep, holders, listener_of, listening
from tests.live.processes import WorkerProcess, archived, insert_jobs, migrate, sql, unlocked_jobs, url_of
from tests.postgres import Postgres

RunWorker = Callable[..., QueueWorker]
Spawn = Callable[..., WorkerProcess]

FOR_EVER = 1000.0  # seconds
PASSED = (":tests/pass", ":success", 1)


@pytest.fixture(autouse=True)
def _sleep_for_ever(settings: Any) -> None:
    settings.PROLETARIAN = {"IDLE_POLLING_INTERVAL": FOR_EVER}


@pytest.fixture(autouse=True)
def _pass() -> None:
    job_handler("tests/pass")(lambda payload: None)


@pytest.fixture
def ear(committed: None) -> Iterator[Ear]:
    with listening(url_of()) as ear:
        yield ear


@pytest.fixture
def sleeper(run_worker: RunWorker) -> QueueWorker:
    """A worker that sleeps for ever."""
    worker = run_worker(worker_id="sleeper")
    eventually(lambda: asleep(url_of(), "sleeper"))
    return worker


@pytest.fixture
def listener_role(settings: Any, monkeypatch: pytest.MonkeyPatch, committed: None) -> Iterator[str]:
    """A role of the listener's own, by LISTEN_DATABASE, so that a test can keep the listener out."""
    monkeypatch.setitem(
        connections.databases,
        "listening",
        {**connections.databases["default"], "USER": "listener", "PASSWORD": "listener"},
    )
    settings.PROLETARIAN = {"IDLE_POLLING_INTERVAL": FOR_EVER, "LISTEN_DATABASE": "listening"}
    sql(url_of(), "CREATE ROLE listener LOGIN PASSWORD 'listener'")
    yield "listener"
    eventually(lambda: not sql(url_of(), "SELECT 1 FROM pg_stat_activity WHERE usename = 'listener'"))
    sql(url_of(), "DROP ROLE listener")


# -- An enqueue wakes ------------------------------------------------------------------------------------------------


def enqueue_one() -> list[UUID]:
    return [enqueue("tests/pass")]


def enqueue_some() -> list[UUID]:
    return enqueue_many([("tests/pass", number) for number in range(3)])


def enqueue_in_a_transaction() -> list[UUID]:
    with transaction.atomic():
        return [enqueue("tests/pass"), enqueue("tests/pass")]


@pytest.mark.parametrize("enqueue_now", [enqueue_one, enqueue_some, enqueue_in_a_transaction])
@pytest.mark.parametrize("threads", [1, 5])
def test_a_sleeping_worker_is_woken_by_every_enqueue(
    run_worker: RunWorker, threads: int, enqueue_now: Callable[[], list[UUID]]
) -> None:
    run_worker(worker_id="sleeper", threads=threads)
    ids: set[UUID] = set()
    for _ in range(3):
        eventually(lambda: asleep(url_of(), "sleeper"))
        ids |= set(enqueue_now())
        eventually(lambda: not rows("proletarian.job"))
    assert {row["job_id"] for row in rows("proletarian.archived_job")} == ids


def test_an_enqueue_in_a_transaction_wakes_at_its_commit(sleeper: QueueWorker, ear: Ear) -> None:
    with transaction.atomic():
        enqueue("tests/pass")
        assert ear.heard() == []
        assert asleep(url_of(), "sleeper")
    eventually(lambda: archived(url_of()) == [PASSED])
    assert ear.heard() != []


@pytest.mark.parametrize("enqueue_now", [enqueue_one, enqueue_some])
def test_a_rolled_back_enqueue_sends_nothing_and_wakes_nobody(
    sleeper: QueueWorker, ear: Ear, enqueue_now: Callable[[], list[UUID]]
) -> None:
    with transaction.atomic():
        enqueue_now()
        transaction.set_rollback(True)
    assert ear.heard() == []
    assert asleep(url_of(), "sleeper")
    assert holders(url_of()) == {"sleeper-listener"}


def test_an_enqueue_to_a_queue_on_which_nobody_sleeps_sends_nothing(sleeper: QueueWorker, ear: Ear) -> None:
    enqueue("tests/pass", queue="tests/other")
    assert ear.heard() == []


def test_a_worker_of_several_queues_is_woken_for_each(run_worker: RunWorker) -> None:
    run_worker("tests/first", "tests/second", worker_id="sleeper")
    for number, queue in enumerate(["tests/second", "tests/first", "tests/second"], start=1):
        eventually(lambda: asleep(url_of(), "sleeper"))
        enqueue("tests/pass", queue=queue)
        eventually(lambda number=number: len(archived(url_of())) == number)


def test_a_notification_that_is_none_of_ours_is_passed_over(sleeper: QueueWorker) -> None:
    sql(url_of(), "SELECT pg_notify('proletarian', payload) FROM unnest(ARRAY['', 'cars', '1.5', '7']) AS payload")
    for number in (1, 2):
        eventually(lambda: asleep(url_of(), "sleeper"))
        enqueue("tests/pass")
        eventually(lambda number=number: len(archived(url_of())) == number)
    assert listener_of(url_of(), "sleeper")


# -- Nothing is notified for nothing ---------------------------------------------------------------------------------


def test_nothing_is_notified_while_there_is_no_worker(ear: Ear) -> None:
    enqueue_one()
    enqueue_some()
    enqueue_in_a_transaction()
    assert ear.heard() == []


def test_nothing_is_notified_while_all_threads_are_busy(
    run_worker: RunWorker, blocking: Callable[[], Blocking], ear: Ear
) -> None:
    both = [blocking(), blocking()]
    job_handler("tests/block")(lambda payload: both[payload](payload))
    run_worker(worker_id="busy", threads=2)
    eventually(lambda: asleep(url_of(), "busy"))
    enqueue_many([("tests/block", 0), ("tests/block", 1)])
    assert all(each.started.wait(20) for each in both)
    eventually(lambda: not holders(url_of()))
    ear.heard()

    enqueue_one()
    enqueue_some()
    enqueue_in_a_transaction()

    assert ear.heard() == []
    for each in both:
        each.go.set()
    eventually(lambda: len(archived(url_of())) == 8)


def test_an_enqueue_is_notified_while_one_of_two_threads_is_busy(
    run_worker: RunWorker, blocking: Callable[[], Blocking], ear: Ear
) -> None:
    block = blocking()
    job_handler("tests/block")(block)
    run_worker(worker_id="half", threads=2)
    eventually(lambda: asleep(url_of(), "half"))
    enqueue("tests/block")
    assert block.started.wait(20)
    eventually(lambda: asleep(url_of(), "half") and holders(url_of()))
    ear.heard()

    enqueue_one()

    eventually(lambda: archived(url_of()) == [PASSED])
    assert ear.heard() != []
    block.go.set()


# -- The clock wakes -------------------------------------------------------------------------------------------------


def test_a_job_scheduled_while_the_worker_sleeps_runs_when_it_is_due(sleeper: QueueWorker) -> None:
    enqueue("tests/pass", process_in=timedelta(seconds=1))
    eventually(lambda: archived(url_of()) == [PASSED])
    [row] = rows("proletarian.archived_job")
    assert row["finished_at"] >= row["process_at"]


def test_a_job_scheduled_before_the_worker_started_runs_when_it_is_due(run_worker: RunWorker) -> None:
    enqueue("tests/pass", process_in=timedelta(seconds=1))
    run_worker(worker_id="sleeper")
    eventually(lambda: archived(url_of()) == [PASSED])


def test_a_job_scheduled_earlier_than_the_one_waited_for_wakes_the_worker(run_worker: RunWorker) -> None:
    enqueue("tests/pass", process_in=timedelta(hours=1))
    run_worker(worker_id="sleeper")
    eventually(lambda: asleep(url_of(), "sleeper"))
    enqueue("tests/pass", process_in=timedelta(seconds=0.5))
    eventually(lambda: archived(url_of()) == [PASSED])
    assert unlocked_jobs(url_of()) == [(":tests/pass", 0)]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_retry_runs_when_it_is_due(run_worker: RunWorker, threads: int) -> None:
    @job_handler("tests/fail-at-first", advanced=True, retry_strategy=RetryStrategy(retries=2, delays=[0.3]))
    def fail_at_first(job: Any) -> None:
        if job.attempts < 3:
            raise ValueError("not yet")

    run_worker(worker_id="sleeper", threads=threads)
    eventually(lambda: asleep(url_of(), "sleeper"))
    enqueue("tests/fail-at-first")
    eventually(lambda: archived(url_of()) == [(":tests/fail-at-first", ":success", 3)])


def test_a_retry_runs_when_it_is_due_although_its_thread_has_gone_on_to_a_long_job(
    run_worker: RunWorker, blocking: Callable[[], Blocking]
) -> None:
    block, attempts = blocking(), []
    job_handler("tests/block")(block)

    @job_handler("tests/fail-once", retry_strategy=RetryStrategy(retries=1, delays=[0.3]))
    def fail_once(payload: object) -> None:
        attempts.append(payload)
        if len(attempts) == 1:
            enqueue("tests/block")
            raise ValueError("not yet")

    run_worker(worker_id="sleeper", threads=2)
    eventually(lambda: asleep(url_of(), "sleeper"))
    enqueue("tests/fail-once")
    eventually(lambda: archived(url_of()) == [(":tests/fail-once", ":success", 2)])
    assert block.started.is_set()
    block.go.set()


# -- Polling finds what nobody announced -----------------------------------------------------------------------------


def test_a_job_that_clojure_enqueued_is_found_at_the_idle_polling_interval(
    run_worker: RunWorker, settings: Any
) -> None:
    settings.PROLETARIAN = {"IDLE_POLLING_INTERVAL": 0.3}
    run_worker(worker_id="sleeper")
    eventually(lambda: asleep(url_of(), "sleeper"))
    insert_jobs(url_of(), "tests/pass", ["1"])
    eventually(lambda: archived(url_of()) == [PASSED])


def test_a_transaction_that_enqueued_before_the_worker_fell_asleep_is_not_lost(run_worker: RunWorker) -> None:
    polls = []

    def polled(**data: object) -> None:
        polls.append(data)

    signals.polling_for_jobs.connect(polled)
    try:
        with transaction.atomic():
            enqueue("tests/pass")
            run_worker(worker_id="sleeper")
            eventually(lambda: listener_of(url_of(), "sleeper"))
            so_far = len(polls)
            # It will not be notified, so the worker may not sleep.
            eventually(lambda: len(polls) >= so_far + 5)
            assert not asleep(url_of(), "sleeper")
        eventually(lambda: archived(url_of()) == [PASSED])
    finally:
        signals.polling_for_jobs.disconnect(polled)
    eventually(lambda: asleep(url_of(), "sleeper"))


@pytest.mark.server
def test_fifty_idle_threads_send_one_query_an_interval(spawn: Spawn) -> None:
    interval = 0.1  # seconds
    with Postgres(log_statement="all", log_line_prefix="%a: ") as server:
        migrate(server.url)
        proletarian = json.dumps({"IDLE_POLLING_INTERVAL": interval})
        spawn(
            *("--threads", "50", "--worker-id", "fifty"),
            url=server.url,
            settings="tests.live.given_settings",
            PROLETARIAN=proletarian,
        )
        eventually(lambda: asleep(server.url, "fifty"))
        log = server.directory / "log"

        def queries() -> int:
            lines = log.read_text().splitlines()
            return sum(line.startswith("fifty-") and "statement: " in line for line in lines)

        so_far, since = queries(), time.monotonic()
        eventually(lambda: queries() >= so_far + 12)
        count, intervals = queries() - so_far, (time.monotonic() - since) / interval
    assert count <= intervals + 2


# -- Several workers on one queue ------------------------------------------------------------------------------------


def test_of_two_processes_the_sleeping_one_is_woken_while_the_other_is_busy(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    for name in ("left", "right"):
        spawn(
            *("--worker-id", name),
            settings="tests.live.given_settings",
            PROLETARIAN=json.dumps({"IDLE_POLLING_INTERVAL": FOR_EVER}),
        )
    eventually(lambda: asleep(url_of(), "left") and asleep(url_of(), "right"))
    enqueue("tests/wait-for-file", {"started": str(started), "go": str(go)})
    eventually(started.exists)

    for number in range(1, 6):
        eventually(lambda: asleep(url_of(), "left") or asleep(url_of(), "right"))
        enqueue("tests/append", number)
        eventually(lambda number=number: len(archived(url_of())) == number)
    go.touch()
    eventually(lambda: len(archived(url_of())) == 6)


def test_when_the_worker_that_holds_the_lock_stops_the_other_takes_over(run_worker: RunWorker) -> None:
    workers = {f"{name}-listener": run_worker(worker_id=name) for name in ("left", "right")}
    eventually(lambda: asleep(url_of(), "left") and asleep(url_of(), "right"))
    [holder] = holders(url_of())
    [other] = workers.keys() - {holder}

    assert workers[holder].stop()

    eventually(lambda: holders(url_of()) == {other})
    eventually(lambda: asleep(url_of(), other.removesuffix("-listener")))
    enqueue("tests/pass")
    eventually(lambda: archived(url_of()) == [PASSED])


def test_when_the_listener_that_holds_the_lock_is_cut_off_the_other_takes_over(
    listener_role: str, run_worker: RunWorker, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody tells the other one: it looks from time to time.
    monkeypatch.setattr(listener, "LOOK_AGAIN", 0.2)
    run_worker(worker_id="left")
    eventually(lambda: holders(url_of()) == {"left-listener"})
    settings.PROLETARIAN = {"IDLE_POLLING_INTERVAL": FOR_EVER}
    run_worker(worker_id="right")
    eventually(lambda: asleep(url_of(), "right"))

    keep_out(listener_role)

    eventually(lambda: holders(url_of()) == {"right-listener"})
    eventually(lambda: asleep(url_of(), "right"))


# -- The listener is lost --------------------------------------------------------------------------------------------


def keep_out(role: str) -> None:
    sql(url_of(), f"ALTER ROLE {role} NOLOGIN")
    sql(url_of(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [role])


def test_a_worker_whose_listener_is_killed_gets_it_back(sleeper: QueueWorker) -> None:
    before = listener_of(url_of(), "sleeper")
    sql(url_of(), "SELECT pg_terminate_backend(%s)", [before])

    eventually(lambda: listener_of(url_of(), "sleeper") not in (None, before))
    eventually(lambda: holders(url_of()) == {"sleeper-listener"} and asleep(url_of(), "sleeper"))
    enqueue("tests/pass")
    eventually(lambda: archived(url_of()) == [PASSED])


def test_while_the_listener_is_away_the_worker_polls_as_if_it_had_none(
    listener_role: str, run_worker: RunWorker
) -> None:
    run_worker(worker_id="sleeper")
    eventually(lambda: asleep(url_of(), "sleeper"))
    assert sql(url_of(), "SELECT usename FROM pg_stat_activity WHERE application_name = 'sleeper-listener'") == [
        (listener_role,)
    ]

    keep_out(listener_role)
    for number in (1, 2):
        enqueue("tests/pass")
        eventually(lambda number=number: len(archived(url_of())) == number)
    assert listener_of(url_of(), "sleeper") is None
    assert not asleep(url_of(), "sleeper")

    sql(url_of(), f"ALTER ROLE {listener_role} LOGIN")
    eventually(lambda: holders(url_of()) == {"sleeper-listener"} and asleep(url_of(), "sleeper"))
    enqueue("tests/pass")
    eventually(lambda: len(archived(url_of())) == 3)


def test_jobs_enqueued_while_the_listener_is_killed_again_and_again_all_run(sleeper: QueueWorker) -> None:
    for number in range(30):
        enqueue("tests/pass", number)
        if number % 3 == 0:
            sql(
                url_of(),
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sleeper-listener'",
            )
    eventually(lambda: len(archived(url_of())) == 30)


# -- Stopping --------------------------------------------------------------------------------------------------------


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def test_a_stop_ends_a_sleeping_worker_and_its_listener_and_leaves_nothing_open(run_worker: RunWorker) -> None:
    # The first one makes whatever is made once in a process.
    assert run_worker(worker_id="first").stop()
    before = open_files()
    worker = run_worker(worker_id="sleeper", threads=3)
    eventually(lambda: asleep(url_of(), "sleeper"))

    assert worker.stop(timeout=20)

    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("sleeper-")]
    eventually(lambda: not sql(url_of(), "SELECT 1 FROM pg_stat_activity WHERE application_name ^@ 'sleeper-'"))
    assert open_files() == before


def test_a_stop_does_not_wait_for_a_listener_that_waits_to_connect_again(
    listener_role: str, run_worker: RunWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    def pauses() -> Iterator[float]:
        waits.set()
        while True:
            yield FOR_EVER

    monkeypatch.setattr(listener, "pauses", pauses)
    keep_out(listener_role)
    worker = run_worker(worker_id="sleeper")
    assert waits.wait(20)
    enqueue("tests/pass")
    eventually(lambda: archived(url_of()) == [PASSED])

    assert worker.stop(timeout=20)
