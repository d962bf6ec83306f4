"""What long jobs tell and keep: progress, checkpoints, and a fence around what they write."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models.functions import Now

from django_proletarian import (
    Job,
    LeaseLost,
    PayloadEncodeError,
    QueueWorker,
    RetryStrategy,
    current_job,
    enqueue,
    job_handler,
    models,
)
from django_proletarian.job_states import running_jobs
from django_proletarian.progress import Progress
from django_proletarian.tables import Tables
from django_proletarian.testing import perform_job, run_jobs
from tests.app.models import Entry
from tests.conftest import eventually
from tests.live.events import Events
from tests.live.processes import archived, url_of

RunWorker = Callable[..., QueueWorker]
TWICE = RetryStrategy(retries=2, delays=[0])
lease = pytest.mark.parametrize("lease", [None, 60], ids=["locked", "leased"])


def texts() -> list[str]:
    return [entry.text for entry in Entry.objects.order_by("pk")]


# -- Progress --------------------------------------------------------------------------------------------------------


@lease
def test_progress_is_seen_from_elsewhere_within_seconds(run_worker: RunWorker, lease: int | None) -> None:
    go = threading.Event()

    @job_handler("tests/tells", lease=lease)
    def tells(payload: object) -> None:
        current_job().progress(1)
        current_job().progress(300, 1000, "prices")
        assert go.wait(30)

    job_id = enqueue(tests := "tests/tells")
    run_worker(worker_id="teller")

    def seen() -> Progress | None:
        with connection.cursor() as cursor:
            told = running_jobs(cursor, Tables(), [job_id]).get(job_id)
        return told and told.progress

    try:
        # The worker's next regular heartbeat may be five seconds away.
        assert eventually(seen, seconds=4) == Progress(done=300, total=1000, message="prices")
        out = StringIO()
        call_command("proletarian_status", stdout=out)
        [line] = [line for line in out.getvalue().splitlines() if str(job_id) in line]
        assert tests in line
        assert "teller" in line
        assert "300 of 1,000 (30 %): prices" in line
        call_command("proletarian_status", "--json", stdout=(out := StringIO()))
        [job] = json.loads(out.getvalue())["progressing"]
        assert (job["job_id"], job["progress"]["done"]) == (str(job_id), 300)
    finally:
        go.set()
    eventually(lambda: archived(url_of()))
    assert seen() is None


def test_progress_is_written_once_a_second_however_often_it_is_told(run_worker: RunWorker) -> None:
    done = threading.Event()

    @job_handler("tests/tells", advanced=True)
    def tells(job: Job) -> None:
        for number in range(50_000):
            job.progress(number, 50_000)
        done.set()

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'worker'")
        [before] = cursor.fetchone()
        enqueue("tests/tells")
        worker = run_worker()
        assert done.wait(60)
        assert worker.stop()
        cursor.execute("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'worker'")
        [after] = cursor.fetchone()
    assert after - before < 60


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress.of(3), "3"),
        (Progress.of(3, 10), "3 of 10 (30 %)"),
        (Progress.of(1234567, 2345678, "rows"), "1,234,567 of 2,345,678 (52 %): rows"),
        (Progress.of(0.5, 1.5), "0.5 of 1.5 (33 %)"),
        (Progress.of(12, 10), "12 of 10 (100 %)"),
        (Progress.of(0, 0), "0 of 0"),
    ],
)
def test_progress_in_words(progress: Progress, text: str) -> None:
    assert str(progress) == text
    assert Progress.from_json(json.loads(json.dumps(progress.as_json()))) == progress


@pytest.mark.parametrize("given", [("3",), (None,), (True,), (3, "10"), (float("nan"),), (1, float("inf"))])
def test_progress_that_is_no_number_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"not a number. For example: job.progress\(3, 10\)"):
        Progress.of(*given)


def test_a_message_that_no_row_can_hold_is_made_storable() -> None:
    assert Progress.of(1, None, "a\0b\ud800" + "c" * 500).message == "ab?" + "c" * 197


# -- Checkpoints -----------------------------------------------------------------------------------------------------


@lease
def test_the_next_attempt_goes_on_from_the_last_checkpoint(run_worker: RunWorker, lease: int | None) -> None:
    found: list[object] = []

    @job_handler("tests/import", advanced=True, lease=lease, retry_strategy=TWICE)
    def imports(job: Job) -> None:
        found.append(job.last_checkpoint)
        start = (job.last_checkpoint or {"line": 0})["line"]
        job.checkpoint({"line": start + 1})
        job.checkpoint({"line": start + 2})
        assert job.last_checkpoint == {"line": start + 2}
        if job.attempts < 3:
            raise ValueError

    job_id = enqueue("tests/import")
    run_worker()
    eventually(lambda: archived(url_of()) == [(":tests/import", ":success", 3)])
    assert found == [None, {"line": 2}, {"line": 4}]
    # One row for each attempt that saved, emptied at the success: a job of this id begins from the beginning.
    kept = models.JobAttempt.objects.filter(job_id=job_id, outcome="checkpoint").order_by("attempt")
    assert [(row.attempt, row.result) for row in kept] == [(1, None), (2, None), (3, None)]


@lease
def test_a_checkpoint_commits_with_what_is_written_beside_it_or_not_at_all(
    run_worker: RunWorker, lease: int | None
) -> None:
    @job_handler("tests/import", advanced=True, lease=lease, retry_strategy=TWICE)
    def imports(job: Job) -> None:
        for number in range(job.last_checkpoint or 0, 4):
            with transaction.atomic():
                Entry.objects.create(text=f"row {number}")
                job.checkpoint(number + 1)
                if (number, job.attempts) == (2, 1):
                    raise ValueError

    enqueue("tests/import")
    run_worker()
    eventually(lambda: archived(url_of()) == [(":tests/import", ":success", 2)])
    assert texts() == ["row 0", "row 1", "row 2", "row 3"]


def test_coroutines_save_and_read_checkpoints(run_worker: RunWorker) -> None:
    found: list[object] = []

    @job_handler("tests/import", advanced=True, lease=60, retry_strategy=TWICE)
    async def imports(job: Job) -> None:
        found.append(await job.alast_checkpoint())
        await job.acheckpoint(job.attempts)
        await asyncio.sleep(0)
        if job.attempts == 1:
            raise ValueError

    enqueue("tests/import")
    run_worker()
    eventually(lambda: archived(url_of()) == [(":tests/import", ":success", 2)])
    assert found == [None, 1]


def test_what_no_row_can_hold_is_no_checkpoint(run_worker: RunWorker) -> None:
    raised: list[BaseException] = []

    @job_handler("tests/import", advanced=True)
    def imports(job: Job) -> None:
        for data in (object(), "x" * 2_000_000):
            with pytest.raises(PayloadEncodeError) as caught:
                job.checkpoint(data)
            raised.append(caught.value)

    enqueue("tests/import")
    run_worker()
    eventually(lambda: archived(url_of()) == [(":tests/import", ":success", 1)])
    assert len(raised) == 2


def test_an_atomic_handler_has_no_checkpoints(committed: None) -> None:
    job_handler("tests/import", advanced=True, atomic=True)(lambda job: job.checkpoint(1))
    enqueue("tests/import")
    with pytest.raises(RuntimeError, match="An atomic handler has no checkpoints"):
        run_jobs()


@pytest.mark.django_db
def test_the_testing_tools_know_checkpoints_leases_and_the_current_job() -> None:
    @job_handler("tests/import", lease=60, retry_strategy=TWICE)
    def imports(payload: object) -> object:
        job = current_job()
        job.progress(1, 2)
        with transaction.atomic():
            job.fence()
            job.checkpoint("half")
        if job.attempts == 1:
            raise ValueError
        return job.last_checkpoint

    enqueue("tests/import")
    assert [run.outcome for run in run_jobs(raise_errors=False)] == ["retry", "success"]
    assert perform_job(imports, attempts=2) == "half"
    with pytest.raises(RuntimeError, match="in a handler that a worker runs"):
        current_job()


# -- Fence -----------------------------------------------------------------------------------------------------------


def take(job_id: UUID) -> None:
    models.Job.objects.filter(job_id=job_id).update(attempts=2, process_at=Now() + timedelta(minutes=5))


@pytest.mark.parametrize("write", ["fence", "checkpoint"])
def test_who_has_lost_its_lease_writes_nothing_behind_a_fence(
    run_worker: RunWorker, events: Events, write: str
) -> None:
    seen: list[type[BaseException]] = []
    ready, go = threading.Event(), threading.Event()

    @job_handler("tests/effect", advanced=True, lease=60)
    def effect(job: Job) -> None:
        ready.set()
        assert go.wait(30)
        try:
            with transaction.atomic():
                Entry.objects.create(text="effect", job_id=job.job_id)
                job.fence() if write == "fence" else job.checkpoint(1)
        except LeaseLost as error:
            seen.append(type(error))
            raise

    job_id = enqueue("tests/effect")
    run_worker()
    assert ready.wait(20)
    take(job_id)
    go.set()
    eventually(lambda: events["lease-lost"])
    assert seen == [LeaseLost]
    assert texts() == []
    assert not models.JobAttempt.objects.exists()


def test_a_fence_that_holds_is_no_reason_to_lose_the_lease(run_worker: RunWorker, events: Events) -> None:
    locked, go = threading.Event(), threading.Event()

    @job_handler("tests/effect", advanced=True, lease=2)
    def effect(job: Job) -> None:
        with transaction.atomic():
            job.fence()
            locked.set()
            assert go.wait(1)  # for longer than a third of the lease, so that extending finds the row locked
        assert not job.stop_requested
        Entry.objects.create(text="done")

    enqueue("tests/effect")
    run_worker()
    assert locked.wait(20)
    threading.Timer(0.9, go.set).start()
    eventually(lambda: archived(url_of()) == [(":tests/effect", ":success", 1)])
    assert not events["lease-lost"]


def test_a_fence_is_for_transactions(committed: None) -> None:
    job_handler("tests/effect", advanced=True)(lambda job: job.fence())
    enqueue("tests/effect")
    with pytest.raises(RuntimeError, match=r"within `with transaction.atomic\(\):`"):
        run_jobs()
