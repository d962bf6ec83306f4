"""The row that a worker process keeps among the workers: what it says, when it goes, and that it costs no query."""

from __future__ import annotations

import os
import signal
import socket
import uuid
from collections.abc import Callable

import pytest
from django.db import connection

from django_proletarian import QueueWorker, __version__, enqueue, job_handler, worker_row
from django_proletarian.models import Worker
from tests.conftest import eventually
from tests.live.blocking import Blocking
from tests.live.processes import WorkerProcess, sql, url_of

RunWorker = Callable[..., QueueWorker]
Spawn = Callable[..., WorkerProcess]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats that a test need not wait for."""
    monkeypatch.setattr(worker_row, "INTERVAL", 0.05)
    monkeypatch.setattr(worker_row, "LATE", 0.05)


def test_an_idle_worker_says_what_it_is(run_worker: RunWorker) -> None:
    worker = run_worker("shop/mail", "default", threads=2, worker_id="idle")
    row = eventually(Worker.objects.first)
    assert (row.worker_id, row.host, row.pid) == ("idle", socket.gethostname(), os.getpid())
    assert (row.queues, row.processes, row.threads) == (["shop/mail", "default"], 1, 2)
    assert (row.version, row.running, row.succeeded, row.failed) == (__version__, [], 0, 0)
    assert row.started_at <= row.heartbeat_at
    assert worker.stop()
    assert not Worker.objects.exists()


def test_a_worker_whose_threads_all_run_says_which_jobs_and_since_when(
    often: None, run_worker: RunWorker, blocking: Callable[[], Blocking]
) -> None:
    handlers = [blocking(), blocking()]
    for number, handler in enumerate(handlers):
        job_handler(f"tests/block-{number}")(handler)
    ids = {str(enqueue(f"tests/block-{number}")) for number in range(2)}
    run_worker(threads=2)
    for handler in handlers:
        assert handler.started.wait(20)

    row = eventually(lambda: next((row for row in Worker.objects.all() if len(row.running) == 2), None))

    assert {job["job_id"] for job in row.running} == ids
    assert {job["job_type"] for job in row.running} == {"tests/block-0", "tests/block-1"}
    assert {(job["queue"], job["attempt"]) for job in row.running} == {("proletarian/default", 1)}
    first = max(job["seconds"] for job in row.running)
    eventually(lambda: max(job["seconds"] for job in Worker.objects.get().running) > first)


def test_it_counts_what_succeeded_and_what_failed(often: None, run_worker: RunWorker) -> None:
    job_handler("tests/odd-ones-fail")(lambda number: 1 / (1 - number % 2))
    for number in range(5):
        enqueue("tests/odd-ones-fail", number)
    run_worker()
    eventually(lambda: [(row.succeeded, row.failed) for row in Worker.objects.all()] == [(3, 2)])


def test_two_workers_of_one_name_have_two_rows(run_worker: RunWorker) -> None:
    run_worker(worker_id="twin")
    run_worker(worker_id="twin")
    eventually(lambda: Worker.objects.filter(worker_id="twin").count() == 2)


def test_rows_that_are_a_day_old_go_with_the_next_heartbeat(often: None, run_worker: RunWorker) -> None:
    sql(
        url_of(),
        "INSERT INTO proletarian.worker SELECT gen_random_uuid(), name, 'host', 1, '[]', 1, 1, '0.1', now(), "
        "now() - days * interval '1 day', '[]', 0, 0 FROM (VALUES ('old', 1.1), ('dead', 0.9)) AS row (name, days)",
    )
    run_worker(worker_id="new")
    eventually(lambda: set(Worker.objects.values_list("worker_id", flat=True)) == {"dead", "new"})


def test_a_row_that_someone_deleted_is_written_again(often: None, run_worker: RunWorker) -> None:
    run_worker()
    eventually(Worker.objects.exists)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM proletarian.worker")
    eventually(Worker.objects.exists)


def test_a_worker_works_where_there_is_no_table_of_workers(run_worker: RunWorker) -> None:
    ran: list[object] = []
    job_handler("tests/note")(ran.append)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE proletarian.worker RENAME TO elsewhere")
    try:
        worker = run_worker()
        enqueue("tests/note", "ran")
        eventually(lambda: ran == ["ran"])
        assert worker.stop()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE proletarian.elsewhere RENAME TO worker")


def test_each_process_has_a_row_and_one_that_was_killed_leaves_none_behind(committed: None, spawn: Spawn) -> None:
    worker = spawn("--processes", "2", "--worker-id", "pair")
    before = eventually(lambda: rows if len(rows := list(Worker.objects.order_by("worker_id"))) == 2 else None)
    assert [(row.worker_id, row.processes) for row in before] == [("pair-1", 2), ("pair-2", 2)]
    assert {row.pid for row in before} == set(worker.children)

    os.kill(before[0].pid, signal.SIGKILL)

    def process_ids() -> set[uuid.UUID]:
        return set(Worker.objects.values_list("process_id", flat=True))

    eventually(lambda: before[0].process_id not in process_ids() and len(process_ids()) == 2)
    assert before[1].process_id in process_ids()
    assert worker.stop() == 0
    assert process_ids() == set()
