"""Which jobs run now, as it is seen from outside, and that looking keeps no worker from anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from django_proletarian import NewJob, QueueWorker, enqueue, enqueue_many, job_handler, worker_row
from django_proletarian.connection import ClaimConnection
from django_proletarian.job_states import LOCKED, JobState, RunningJob, all_running_jobs, running_jobs, state_of
from django_proletarian.store import claim_due_jobs
from django_proletarian.tables import Tables, for_tables
from tests.conftest import eventually
from tests.live.blocking import Blocking
from tests.store.test_plans import fill_and_analyze

TABLES = Tables()
DEFAULT = "proletarian/default"
NOW = datetime(2026, 12, 2, tzinfo=UTC)


def running(*job_ids: UUID) -> dict[UUID, RunningJob]:
    with connection.cursor() as cursor:
        return running_jobs(cursor, TABLES, job_ids)


def insert_worker(job_id: UUID, *, seconds_ago: float = 0, attempt: int = 1, **more: Any) -> None:
    told = {"job_id": str(job_id), "job_type": "a", "queue": DEFAULT, "attempt": attempt, "seconds": 7.0, **more}
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proletarian.worker VALUES (%s, 'other', 'host', 1, '[]', 1, 1, '1', now(), "
            "now() - %s * interval '1 second', %s, 0, 0)",
            [uuid4(), seconds_ago, json.dumps([told])],
        )


@pytest.mark.parametrize(
    ("attempts", "process_in", "is_running", "state"),
    [
        (0, 60, False, JobState.SCHEDULED),
        (1, 60, False, JobState.RETRYING),
        (0, 0, False, JobState.DUE),
        (1, -60, False, JobState.DUE),  # its retry is due
        (0, -60, True, JobState.RUNNING),
        (1, 60, True, JobState.RUNNING),  # a lease has put off its next run
    ],
)
def test_states(attempts: int, process_in: float, is_running: bool, state: JobState) -> None:
    process_at = NOW + timedelta(seconds=process_in)
    assert state_of(attempts=attempts, process_at=process_at, now=NOW, is_running=is_running) is state


def test_a_claimed_row_runs_until_its_transaction_ends(claim: ClaimConnection) -> None:
    first, second = enqueue("a"), enqueue("b")
    assert running(first, second, uuid4()) == {}
    [job] = claim_due_jobs(claim, TABLES, [DEFAULT])
    assert running(first, second) == {first: RunningJob(job_id=first)}
    assert job.job_id == str(first)
    claim.send("ROLLBACK")
    assert running(first, second) == {}


def test_looking_makes_no_claim_pass_a_row_over(claim: ClaimConnection) -> None:
    job_id = enqueue("a")
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            assert running_jobs(cursor, TABLES, [job_id]) == {}
            # The transaction that looked is still open.
            [job] = claim_due_jobs(claim, TABLES, [DEFAULT])
        finally:
            cursor.execute("ROLLBACK")
    assert job.job_id == str(job_id)
    claim.send("ROLLBACK")


def test_a_worker_says_which_jobs_it_runs_and_since_when(
    run_worker: Callable[..., QueueWorker],
    blocking: Callable[[], Blocking],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_row, "INTERVAL", 0.05)
    monkeypatch.setattr(worker_row, "LATE", 0.05)
    handler = blocking()
    job_handler("tests/block")(handler)
    job_id = enqueue("tests/block")
    run_worker(worker_id="busy")
    assert handler.started.wait(20)
    told = eventually(lambda: running(job_id)[job_id] if running(job_id)[job_id].worker_id else None)
    assert told.worker_id == "busy"
    assert told.began_at is not None
    assert told.began_at > datetime.now(UTC) - timedelta(seconds=60)
    handler.go.set()
    eventually(lambda: running(job_id) == {})


@pytest.mark.parametrize(
    ("worker", "is_running"),
    [
        ({}, True),
        ({"seconds_ago": 19}, True),
        ({"seconds_ago": 21}, False),  # a dead worker's
        ({"attempt": 2, "leased": True}, False),  # the lease would have counted this attempt
        ({"attempt": 0, "leased": True}, True),
        ({"attempt": 0}, False),  # it failed since, and waits for its retry
    ],
)
def test_what_a_worker_s_row_says_counts_while_it_is_true(
    committed: None, worker: dict[str, Any], is_running: bool
) -> None:
    job_id = enqueue("a")
    insert_worker(job_id, **worker)
    assert set(running(job_id)) == ({job_id} if is_running else set())


def test_a_job_that_only_a_worker_remembers_does_not_run(committed: None) -> None:
    finished = uuid4()
    insert_worker(finished)
    assert running(finished) == {}


def test_rows_are_looked_at_where_there_is_no_table_of_workers(claim: ClaimConnection) -> None:
    job_id = enqueue("a")
    claim_due_jobs(claim, TABLES, [DEFAULT])
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE proletarian.worker RENAME TO elsewhere")
    try:
        assert set(running(job_id)) == {job_id}
    finally:
        claim.send("ROLLBACK")
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE proletarian.elsewhere RENAME TO worker")


def test_all_that_run_are_those_that_workers_name_and_the_locked_ones_at_the_head_of_each_queue(
    claim: ClaimConnection,
) -> None:
    enqueue_many([NewJob("a", queue="mail"), NewJob("b", process_in=timedelta(days=1)), NewJob("c")])
    first, leased = enqueue("d", queue="first"), enqueue("e", process_in=timedelta(days=1))
    insert_worker(leased, attempt=0, leased=True)
    claim_due_jobs(claim, TABLES, ["first"])
    with connection.cursor() as cursor:
        assert set(all_running_jobs(cursor, TABLES, [":first", ":mail", ":proletarian/default"])) == {first, leased}
    claim.send("ROLLBACK")


def test_rows_are_found_by_their_primary_key(claim: ClaimConnection) -> None:
    fill_and_analyze()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {for_tables(LOCKED, TABLES)}", [[uuid4(), uuid4()]])
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "job_pkey" in plan
    assert "Seq Scan" not in plan
