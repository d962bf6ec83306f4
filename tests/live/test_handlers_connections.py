"""Connections of handlers are as a view's: kept, checked and pooled as DATABASES says. Claims have their own."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.db import connection

from django_proletarian import QueueWorker, RetryStrategy, enqueue, job_handler
from tests.conftest import eventually
from tests.live.processes import WorkerProcess, archived, sql, url_of

RunWorker = Callable[..., QueueWorker]


@pytest.fixture
def pids(run_worker: RunWorker) -> Callable[..., list[int]]:
    """Run three jobs, one after another; return the server processes that they used."""

    def pids(between: Callable[[int], None] = lambda pid: None) -> list[int]:
        found: list[int] = []

        @job_handler("tests/pid", retry_strategy=RetryStrategy(retries=1))
        def note_pid(payload: object) -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                found.append(cursor.fetchone()[0])

        run_worker()
        for number in (1, 2, 3):
            enqueue("tests/pid")
            eventually(lambda number=number: len(archived(url_of())) == number)
            if number == 1:
                between(found[0])
        return found

    return pids


@pytest.mark.parametrize(("age", "connections_of_three"), [(0, 3), (60, 1), (None, 1)])
def test_a_connection_lives_for_as_long_as_conn_max_age_says(
    pids: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch, age: int | None, connections_of_three: int
) -> None:
    # All threads share these settings.
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", age)
    assert len(set(pids())) == connections_of_three


def end(pid: int) -> None:
    # With a timeout it waits until the server's end is gone.
    sql(url_of(), "SELECT pg_terminate_backend(%s, 20000)", [pid])


@pytest.mark.parametrize(("checked", "attempts"), [(True, [1, 1, 1]), (False, [1, 2, 1])])
def test_a_kept_connection_that_ended_between_jobs_is_replaced_in_time_if_it_is_checked(
    pids: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch, checked: bool, attempts: list[int]
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", checked)
    pids(between=end)
    # Without the check the second job finds out by failing once, as a view would.
    assert archived(url_of()) == [(":tests/pid", ":success", number) for number in attempts]


def test_handlers_take_their_connections_from_a_pool_and_give_them_back_and_claims_have_their_own(
    committed: None, spawn: Callable[..., WorkerProcess]
) -> None:
    for number in range(5):
        enqueue("tests/append", number)
    worker = spawn(
        *("--threads", "2", "--worker-id", "pooled"),
        settings="tests.live.given_settings",
        # With a thread that keeps its connection the other would wait in vain.
        OPTIONS=json.dumps({"pool": {"min_size": 1, "max_size": 1, "timeout": 10}}),
    )
    eventually(lambda: len(archived(url_of())) == 5)
    assert set(archived(url_of())) == {(":tests/append", ":success", 1)}
    assert names_of_claims("pooled")
    assert worker.stop() == 0


def test_a_claim_connection_is_opened_when_first_used_and_named_after_worker_and_thread(run_worker: RunWorker) -> None:
    job_handler("tests/pass")(lambda payload: None)
    run_worker(worker_id="named", threads=3)
    eventually(lambda: names_of_claims("named"))
    # One thread polls for all, and the others have had no reason yet.
    assert len(names_of_claims("named")) == 1
    enqueue("tests/pass")
    eventually(lambda: archived(url_of()))
    assert names_of_claims("named") <= {"named-1", "named-2", "named-3"}


def names_of_claims(worker_id: str) -> set[str]:
    found = sql(
        url_of(),
        "SELECT application_name FROM pg_stat_activity WHERE starts_with(application_name, %s) "
        "AND application_name !~ 'listener'",
        [f"{worker_id}-"],
    )
    return {name for (name,) in found}
