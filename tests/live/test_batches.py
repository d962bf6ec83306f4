"""Several jobs in one transaction: each ends by itself, and what they share is said here."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from django_proletarian import (
    JobInterrupted,
    NewJob,
    QueueWorker,
    RetryStrategy,
    conf,
    enqueue,
    enqueue_many,
    job_handler,
)
from django_proletarian.connection import ClaimConnection
from django_proletarian.interrupting import Stop
from django_proletarian.log import EventLog
from django_proletarian.polling import JobBudget
from django_proletarian.store import ClaimBounds
from django_proletarian.worker import process_jobs
from tests.app.models import Entry, UniqueEntry
from tests.conftest import eventually, rows
from tests.live.blocking import Blocking
from tests.live.processes import WorkerProcess, archived, insert_jobs, sql, unlocked_jobs, url_of

RunWorker = Callable[..., QueueWorker]
Spawn = Callable[..., WorkerProcess]

FOR_EVER = 1000.0  # seconds
HOUR = timedelta(hours=1)

# The number that is a job's payload, out of its Transit.
NUMBER = r"substring(payload FROM '(\d+)\]?$')::int"


def process_batches(
    claim: ClaimConnection, *, size: int = 10, seconds: float = FOR_EVER, stop: Stop | None = None
) -> tuple[bool | None, int]:
    """Process jobs in batches of `size`, as a worker thread does; what it returns, and how many batches that were."""
    batches = []
    result = process_jobs(
        conf.worker_options(database="default", queues=None, batch_size=size, batch_seconds=seconds),
        claim,
        ["proletarian/default"],
        stop=stop or Stop(),
        log=EventLog(queue_worker_id="tests"),
        budget=JobBudget(None),
        bounds=ClaimBounds(),
        on_claimed=lambda: batches.append(1),
    )
    return result, len(batches)


def enqueue_numbers(job_type: str, count: int, start: int = 1) -> None:
    """Enqueue jobs whose payloads are their numbers, to be run in that order."""
    for number in range(start, start + count):
        enqueue(job_type, number)


def queued() -> list[tuple[Any, ...]]:
    """Payload and attempts of the rows in the queue, which nobody has locked, in the order of process_at."""
    return sql(url_of(), f"SELECT {NUMBER}, attempts FROM proletarian.job ORDER BY process_at FOR UPDATE SKIP LOCKED")


def rows_by_number() -> dict[int, dict[str, Any]]:
    """The rows in the queue, as they are stored."""
    return {row["number"]: row for row in rows("proletarian.job", f"*, {NUMBER} AS number")}


def finished() -> list[tuple[Any, ...]]:
    """Payload, status and attempts of the archive's rows, in the order of their numbers."""
    return sorted(sql(url_of(), f"SELECT {NUMBER}, status, attempts FROM proletarian.archived_job"))


def successes(*numbers: int) -> list[tuple[int, str, int]]:
    return [(number, ":success", 1) for number in numbers]


def texts() -> list[str]:
    return list(Entry.objects.order_by("pk").values_list("text", flat=True))


@pytest.fixture(autouse=True)
def _note() -> None:
    job_handler("tests/note")(lambda payload: Entry.objects.create(text=payload))


# -- Each job ends by itself -----------------------------------------------------------------------------------------


def test_each_job_of_a_batch_fails_retries_and_is_interrupted_by_itself(claim: ClaimConnection) -> None:
    def fail(payload: object) -> None:
        raise ValueError(payload)

    def interrupt(payload: object) -> None:
        raise JobInterrupted

    job_handler("tests/fail")(fail)
    job_handler("tests/retry", retry_strategy=RetryStrategy(retries=1, delays=[HOUR.total_seconds()]))(fail)
    job_handler("tests/interrupted")(interrupt)
    enqueue_numbers("tests/note", 2)
    enqueue("tests/fail", 3)
    enqueue("tests/retry", 4)
    enqueue("tests/interrupted", 5)
    enqueue_numbers("tests/note", 5, start=6)
    before = rows_by_number()

    assert process_batches(claim) == (False, 1)

    assert finished() == [(1, ":success", 1), (2, ":success", 1), (3, ":failure", 1)]
    after = rows_by_number()
    assert after[4]["process_at"] >= before[4]["process_at"] + HOUR
    assert {**after[4], "process_at": None} == {**before[4], "process_at": None, "attempts": 1}
    assert [after[number] for number in range(5, 11)] == [before[number] for number in range(5, 11)]
    assert queued() == [(5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (4, 1)]
    assert texts() == ["1", "2"]


def test_a_retry_of_a_batch_runs_again_with_the_next_and_counts_its_own_attempts(claim: ClaimConnection) -> None:
    seen = []

    @job_handler("tests/thrice", advanced=True, retry_strategy=RetryStrategy(retries=2, delays=[0]))
    def thrice(job: Any) -> None:
        seen.append((job.payload, job.attempts))
        if job.payload == 2:
            raise ValueError("not today")

    enqueue_numbers("tests/thrice", 3)

    assert process_batches(claim)[0] is True

    assert seen == [(1, 1), (2, 1), (3, 1), (2, 2), (2, 3)]
    assert finished() == [(1, ":success", 1), (2, ":failure", 3), (3, ":success", 1)]


def test_an_unreadable_payload_and_an_unknown_type_fail_alone(claim: ClaimConnection) -> None:
    insert_jobs(url_of(), "tests/note", ["1"])
    insert_jobs(url_of(), "tests/note", ["{["])
    insert_jobs(url_of(), "tests/nobodys", ["3"])
    insert_jobs(url_of(), "tests/note", ["4"])

    assert process_batches(claim) == (True, 1)

    archive = sql(url_of(), "SELECT job_type, payload, status, attempts FROM proletarian.archived_job")
    assert set(archive) == {
        (":tests/note", "1", ":success", 1),
        (":tests/note", "{[", ":failure", 1),
        (":tests/nobodys", "3", ":failure", 1),
        (":tests/note", "4", ":success", 1),
    }


def test_a_job_that_the_archive_has_already_is_replaced_there_alone(claim: ClaimConnection) -> None:
    enqueue_numbers("tests/note", 3)
    sql(
        url_of(),
        "INSERT INTO proletarian.archived_job SELECT job_id, queue, job_type, payload, 7, enqueued_at, process_at, "
        f"':failure', now() FROM proletarian.job WHERE {NUMBER} = 2",
    )
    assert process_batches(claim) == (True, 1)
    assert finished() == successes(1, 2, 3)
    assert queued() == []


def test_an_error_that_means_the_worker_leaves_the_whole_batch_as_it_was(claim: ClaimConnection) -> None:
    @job_handler("tests/break")
    def break_off(payload: object) -> None:
        if payload == 2:
            raise KeyboardInterrupt

    enqueue_numbers("tests/break", 3)
    before = rows("proletarian.job")

    with pytest.raises(KeyboardInterrupt):
        process_batches(claim)

    eventually(lambda: queued() == [(1, 0), (2, 0), (3, 0)])
    assert rows("proletarian.job") == before
    assert finished() == []


# -- Atomic handlers -------------------------------------------------------------------------------------------------


def test_an_atomic_handler_that_fails_undoes_only_its_own_writes(claim: ClaimConnection) -> None:
    @job_handler("tests/write", atomic=True)
    def write(payload: int) -> None:
        Entry.objects.create(text=payload)
        if payload == 2:
            raise ValueError("after the write")
        # The third finds a row that the first has written in the same transaction.
        UniqueEntry.objects.create(text="one" if payload in (1, 3) else f"number {payload}")

    enqueue_numbers("tests/write", 4)

    assert process_batches(claim) == (True, 1)

    assert finished() == [(1, ":success", 1), (2, ":failure", 1), (3, ":failure", 1), (4, ":success", 1)]
    assert texts() == ["1", "4"]
    assert sorted(UniqueEntry.objects.values_list("text", flat=True)) == ["number 4", "one"]


def test_plain_and_atomic_handlers_share_a_batch(claim: ClaimConnection) -> None:
    def write(payload: int) -> None:
        Entry.objects.create(text=payload)

    job_handler("tests/write", atomic=True)(write)
    for number in range(1, 7):
        enqueue("tests/write" if number % 2 else "tests/note", number)
    assert process_batches(claim) == (True, 1)
    assert finished() == successes(*range(1, 7))
    assert sorted(texts()) == ["1", "2", "3", "4", "5", "6"]


def test_callbacks_on_commit_run_after_the_batch_is_committed(claim: ClaimConnection) -> None:
    seen = []

    @job_handler("tests/write", atomic=True)
    def write(payload: int) -> None:
        transaction.on_commit(lambda: seen.append((payload, len(finished()), connection.in_atomic_block)))
        if payload == 2:
            raise ValueError("its callback goes with it")

    enqueue_numbers("tests/write", 3)

    assert process_batches(claim) == (True, 1)

    assert seen == [(1, 3, False), (3, 3, False)]


def test_a_callback_on_commit_that_raises_changes_nothing_about_the_batch(claim: ClaimConnection) -> None:
    ran = []

    @job_handler("tests/write", atomic=True)
    def write(payload: int) -> None:
        def callback() -> None:
            ran.append(payload)
            raise IntegrityError("from a callback")

        transaction.on_commit(callback)

    enqueue_numbers("tests/write", 3)
    assert process_batches(claim)[0] is True
    assert finished() == successes(1, 2, 3)
    assert ran == [1, 2, 3]


# -- What is not begun is released -----------------------------------------------------------------------------------


def test_jobs_not_begun_when_a_stop_is_asked_are_run_by_another_worker(claim: ClaimConnection) -> None:
    stop = Stop()

    @job_handler("tests/stop-in-third")
    def stop_in_third(payload: int) -> None:
        if payload == 3:
            stop.set()

    enqueue_numbers("tests/stop-in-third", 10)
    before = rows_by_number()

    assert process_batches(claim, stop=stop) == (False, 1)

    assert finished() == successes(1, 2, 3)
    assert queued() == [(number, 0) for number in range(4, 11)]
    assert all(before[number] == row for number, row in rows_by_number().items())
    with ClaimConnection("default", "another") as another:
        assert process_batches(another) == (True, 1)
    assert finished() == successes(*range(1, 11))


def test_jobs_not_begun_when_the_batch_has_taken_long_enough_are_released(claim: ClaimConnection) -> None:
    unlocked = []

    def look(payload: object) -> None:
        unlocked.append(len(unlocked_jobs(url_of())))

    job_handler("tests/look")(look)
    enqueue_numbers("tests/look", 6)
    # Each batch has taken long enough after its first job; the claim takes no more than three.
    assert process_batches(claim, size=3, seconds=0) == (True, 6)
    assert finished() == successes(*range(1, 7))
    assert unlocked == [3, 2, 1, 0, 0, 0]


def test_a_batch_that_is_quick_is_one_claim(claim: ClaimConnection) -> None:
    enqueue_many([NewJob("tests/note", number) for number in range(25)])
    assert process_batches(claim, size=10) == (True, 3)
    assert finished() == successes(*range(25))


def test_a_worker_process_killed_in_the_seventh_job_leaves_all_ten_as_they_were(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    enqueue_numbers("tests/append", 6)
    enqueue("tests/wait-for-file", {"started": str(started), "go": str(go)})
    enqueue_numbers("tests/append", 3, start=8)
    before = rows("proletarian.job")

    def spawn_worker(*arguments: str) -> WorkerProcess:
        proletarian = json.dumps({"BATCH_SECONDS": FOR_EVER})
        settings = "tests.live.given_settings"
        return spawn("--batch-size", "10", *arguments, settings=settings, PROLETARIAN=proletarian)

    victim = spawn_worker()
    eventually(started.exists)
    assert unlocked_jobs(url_of()) == []

    victim.send(signal.SIGKILL)

    assert victim.ends() == -signal.SIGKILL
    eventually(lambda: len(unlocked_jobs(url_of())) == 10)
    assert rows("proletarian.job") == before
    assert archived(url_of()) == []

    go.touch()
    assert spawn_worker("--drain").ends() == 0
    assert rows("proletarian.job") == []
    assert len(archived(url_of())) == 10
    assert {(status, attempts) for _, status, attempts in archived(url_of())} == {(":success", 1)}
    # What a crash repeats: the handlers of the batch that had ended.
    assert texts() == ["1", "2", "3", "4", "5", "6", "1", "2", "3", "4", "5", "6", "waited", "8", "9", "10"]


def test_a_worker_process_asked_to_stop_in_a_batch_settles_what_has_run_and_releases_the_rest(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    enqueue_numbers("tests/append", 2)
    enqueue("tests/wait-for-stop", str(started))
    enqueue_numbers("tests/append", 2, start=4)
    worker = spawn(
        *("--batch-size", "5"),
        settings="tests.live.given_settings",
        PROLETARIAN=json.dumps({"BATCH_SECONDS": FOR_EVER}),
    )
    eventually(started.exists)

    assert worker.stop() == 0

    assert finished() == successes(1, 2)
    assert unlocked_jobs(url_of()) == [(":tests/wait-for-stop", 0), (":tests/append", 0), (":tests/append", 0)]


# -- Several threads and workers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_no_more_than_max_jobs_are_run_in_batches(run_worker: RunWorker, threads: int) -> None:
    ran = []

    @job_handler("tests/sometimes-fail")
    def sometimes_fail(payload: int) -> None:
        ran.append(payload)
        if payload % 3 == 0:
            raise ValueError(payload)

    enqueue_many([NewJob("tests/sometimes-fail", number) for number in range(30)])

    worker = run_worker(batch_size=4, threads=threads, max_jobs=10)

    assert worker.join(20)
    assert len(ran) == 10
    assert len(finished()) == 10
    assert [attempts for _, attempts in queued()] == [0] * 20


def test_a_batch_cut_short_gives_back_its_part_of_max_jobs(run_worker: RunWorker, settings: Any) -> None:
    settings.PROLETARIAN = {"BATCH_SECONDS": 0}
    enqueue_many([NewJob("tests/note", number) for number in range(12)])
    worker = run_worker(batch_size=5, max_jobs=7)
    assert worker.join(20)
    assert len(finished()) == 7


def test_a_long_job_holds_back_the_rest_of_its_batch_and_no_other_jobs(
    run_worker: RunWorker, blocking: Callable[[], Blocking]
) -> None:
    block = blocking()
    job_handler("tests/block")(block)
    enqueue("tests/block", 0)
    enqueue_numbers("tests/note", 4)
    run_worker(worker_id="left", batch_size=5)
    assert block.started.wait(20)
    run_worker(worker_id="right", batch_size=5)

    enqueue_many([NewJob("tests/note", number) for number in range(5, 20)])

    eventually(lambda: finished() == successes(*range(5, 20)))
    assert queued() == []
    block.go.set()
    eventually(lambda: finished() == successes(*range(20)))


def test_workers_with_batches_run_each_job_once(run_worker: RunWorker) -> None:
    ran = []
    job_handler("tests/count")(ran.append)
    for size in (1, 7, 50):
        run_worker(worker_id=f"by-{size}", batch_size=size, threads=2)

    enqueue_many([NewJob("tests/count", number) for number in range(1000)])

    eventually(lambda: len(archived(url_of())) == 1000)
    assert sorted(ran) == list(range(1000))
    assert finished() == successes(*range(1000))
