"""Jobs that run under a lease: nobody holds their rows' locks, and only who has the lease settles them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.checks import run_checks
from django.db import connection
from django.db.models.functions import Now

from django_proletarian import (
    InvalidHandler,
    JobInterrupted,
    LeaseLost,
    NewJob,
    QueueWorker,
    RetryStrategy,
    enqueue,
    enqueue_many,
    job_handler,
    stop_requested,
    wait_or_stop,
)
from django_proletarian.job_states import running_jobs
from django_proletarian.models import ArchivedJob, Job, JobAttempt
from django_proletarian.overview import queue_states
from django_proletarian.tables import Tables
from tests.app.models import Entry
from tests.benchmarks.long_jobs import measure
from tests.conftest import eventually, rows
from tests.live.blocking import Blocking
from tests.live.cuttable import Cuttable
from tests.live.events import Events
from tests.live.processes import WorkerProcess, archived, migrate, sql, unlocked_jobs, url_of
from tests.postgres import Postgres

RunWorker = Callable[..., QueueWorker]
Spawn = Callable[..., WorkerProcess]
MakeBlocking = Callable[[], Blocking]
TABLES = Tables()
DUE = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def leased(body: Callable[[Any], object], lease: float = 60, **options: Any) -> None:
    job_handler("tests/leased", lease=lease, **options)(body)


def enqueue_leased() -> UUID:
    job_id = enqueue("tests/leased")
    Job.objects.update(process_at=DUE)
    return job_id


def states(job_id: UUID) -> set[UUID]:
    with connection.cursor() as cursor:
        return set(running_jobs(cursor, TABLES, [job_id]))


def transactions() -> list[str]:
    """The names of those that have a transaction open, but for whoever asks."""
    return [
        name
        for (name,) in sql(
            url_of(),
            "SELECT application_name FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
            " AND datname = current_database()",
        )
    ]


def take(job_id: UUID) -> None:
    """What another worker does with a job whose lease is over."""
    Job.objects.filter(job_id=job_id).update(attempts=2, process_at=Now() + timedelta(minutes=5))


def test_while_it_runs_it_is_put_off_nobody_holds_a_transaction_and_it_is_shown_as_running(
    run_worker: RunWorker, blocking: MakeBlocking
) -> None:
    body = blocking()
    leased(body)
    job_id = enqueue_leased()
    run_worker()
    assert body.started.wait(20)

    job = Job.objects.get(job_id=job_id)
    assert job.attempts == 1
    assert timedelta(seconds=50) < job.process_at - datetime.now(UTC) < timedelta(seconds=70)
    assert transactions() == []
    assert states(job_id) == {job_id}
    with connection.cursor() as cursor:
        [state] = queue_states(cursor, TABLES, [])
    assert (state.due.value, state.scheduled.value) == (1, 0)

    body.go.set()
    [done] = eventually(lambda: list(ArchivedJob.objects.all()))
    assert (done.status, done.attempts, done.process_at) == ("success", 1, DUE)
    assert not Job.objects.exists()


def test_a_retry_counts_its_attempt_once_and_is_not_shown_as_running(run_worker: RunWorker, events: Events) -> None:
    leased(lambda payload: 1 / 0, retry_strategy=RetryStrategy(retries=1, delays=[600]))
    job_id = enqueue_leased()
    run_worker()
    [told] = eventually(lambda: events["retrying"])
    job = eventually(lambda: Job.objects.filter(job_id=job_id, process_at=told["retry_at"]).first())
    assert job.attempts == 1
    assert states(job_id) == set()
    assert [attempt.outcome for attempt in JobAttempt.objects.all()] == ["retry"]


def test_it_is_extended_as_long_as_it_runs(run_worker: RunWorker, blocking: MakeBlocking) -> None:
    body = blocking()
    leased(body, lease=1)
    job_id = enqueue_leased()
    run_worker(threads=2)
    assert body.started.wait(20)
    first = Job.objects.get(job_id=job_id).process_at
    # A second after the first lease's end, by the database's clock, it was never due.
    eventually(lambda: Job.objects.filter(process_at__gt=first + timedelta(seconds=2)).exists())
    assert Job.objects.get(job_id=job_id).attempts == 1
    body.go.set()
    eventually(lambda: archived(url_of()) == [(":tests/leased", ":success", 1)])


def test_an_interrupted_one_is_put_back_as_it_was(run_worker: RunWorker) -> None:
    started = threading.Event()

    def waits(payload: object) -> None:
        started.set()
        assert wait_or_stop(30)
        raise JobInterrupted

    leased(waits)
    enqueue_leased()
    worker = run_worker()
    assert started.wait(20)
    assert worker.stop()
    [job] = Job.objects.all()
    assert (job.attempts, job.process_at) == (0, DUE)


@pytest.mark.parametrize("ending", ["returns", "fails", "raises what it gets"])
def test_who_has_lost_its_lease_archives_and_retries_nothing_and_is_told_to_stop(
    run_worker: RunWorker, events: Events, ending: str
) -> None:
    told: list[str] = []
    started = threading.Event()

    def body(payload: object) -> None:
        started.set()
        try:
            while not stop_requested():
                time.sleep(0.01)
            time.sleep(60)
        except LeaseLost:
            told.append("lost")
            if ending == "raises what it gets":
                raise
        if ending == "fails":
            raise ValueError

    leased(body, lease=1, failed_job=lambda job, error: told.append("failed"))
    job_id = enqueue_leased()
    run_worker()
    assert started.wait(20)
    take(job_id)

    [lost] = eventually(lambda: events["lease-lost"])
    assert lost["job_id"] == job_id
    assert told == ["lost"]
    assert not archived(url_of())
    assert Job.objects.get(job_id=job_id).attempts == 2
    assert not JobAttempt.objects.exists()


def test_who_is_not_to_be_interrupted_is_only_asked_to_stop(run_worker: RunWorker, events: Events) -> None:
    seen: list[bool] = []
    started = threading.Event()

    def body(payload: object) -> None:
        started.set()
        seen.append(wait_or_stop(30))

    leased(body, lease=1, interruptible=False)
    job_id = enqueue_leased()
    run_worker()
    assert started.wait(20)
    take(job_id)
    eventually(lambda: events["lease-lost"])
    assert seen == [True]


def test_an_async_handler_runs_under_a_lease_and_is_cancelled_when_it_is_lost(
    run_worker: RunWorker, events: Events
) -> None:
    import asyncio

    seen: list[str] = []

    @job_handler("tests/leased", lease=1)
    async def body(payload: object) -> None:
        try:
            seen.append("started")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    job_id = enqueue_leased()
    run_worker()
    eventually(lambda: seen)
    take(job_id)
    eventually(lambda: events["lease-lost"])
    assert seen == ["started", "cancelled"]


def test_an_outage_that_is_shorter_than_the_lease_costs_nothing(run_worker: RunWorker, blocking: MakeBlocking) -> None:
    body = blocking()
    leased(body, lease=20)
    job_id = enqueue_leased()
    run_worker()
    assert body.started.wait(20)
    sql(
        url_of(),
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
        "datname = current_database() AND application_name LIKE '%-1'",
    )
    body.go.set()
    eventually(lambda: archived(url_of()) == [(":tests/leased", ":success", 1)])
    assert not Job.objects.filter(job_id=job_id).exists()


def test_a_time_limit_ends_a_leased_job_too(run_worker: RunWorker) -> None:
    leased(lambda payload: [time.sleep(0.01) for _ in range(3000)], time_limit=0.1)
    enqueue_leased()
    run_worker()
    eventually(lambda: archived(url_of()) == [(":tests/leased", ":failure", 1)])
    assert [attempt.outcome for attempt in JobAttempt.objects.all()] == ["timeout"]


def test_in_a_batch_it_ends_the_batch_before_it_and_runs_alone(run_worker: RunWorker, blocking: MakeBlocking) -> None:
    body = blocking()
    leased(body)
    job_handler("tests/short")(lambda payload: Entry.objects.create(text=payload))
    first = [NewJob("tests/short", "a"), NewJob("tests/short", "b"), NewJob("tests/leased"), NewJob("tests/short", "c")]
    enqueue_many([job._replace(process_at=DUE + timedelta(seconds=n)) for n, job in enumerate(first)])
    run_worker(batch_size=10)
    assert body.started.wait(20)
    # The two before it are committed, the one after it is free for another thread.
    assert [job_type for job_type, *_ in archived(url_of())] == [":tests/short", ":tests/short"]
    assert [job_type for job_type, attempts in unlocked_jobs(url_of()) if not attempts] == [":tests/short"]
    body.go.set()
    eventually(lambda: len(archived(url_of())) == 4)
    assert [entry.text for entry in Entry.objects.order_by("pk")] == ["a", "b", "c"]


@pytest.mark.parametrize("given", [0.5, timedelta(days=4_000_000), "5", 0, True])
def test_a_lease_that_is_none_is_refused_where_the_handler_is_declared(given: Any) -> None:
    with pytest.raises(InvalidHandler, match=r"lease is .*lease=timedelta\(minutes=5\)"):
        leased(lambda payload: None, lease=given)


def test_atomic_and_a_lease_are_refused_by_a_check() -> None:
    leased(lambda payload: None, atomic=True)
    [error] = [error for error in run_checks() if error.id == "django_proletarian.E039"]
    assert "tests/leased" in error.msg
    assert "transaction" in error.msg
    assert error.hint


# -- Processes -------------------------------------------------------------------------------------------------------


def started(spawn: Spawn, tmp_path: Path, *arguments: str, **payload: Any) -> tuple[WorkerProcess, UUID, Path]:
    """A worker that runs a leased job, which waits for a file."""
    begun, go = tmp_path / "started", tmp_path / "go"
    job_id = enqueue("tests/wait-for-file-leased", {"started": str(begun), "go": str(go), **payload})
    worker = spawn("--threads", "2", *arguments)
    eventually(begun.exists)
    return worker, job_id, go


def test_after_a_kill_that_the_supervisor_sees_it_is_due_at_once(committed: None, spawn: Spawn, tmp_path: Path) -> None:
    worker, _, go = started(spawn, tmp_path)
    pid = int((tmp_path / "started").read_text())
    (tmp_path / "started").unlink()
    os.kill(pid, signal.SIGKILL)
    go.touch()
    eventually((tmp_path / "started").exists, seconds=20)  # its lease is five minutes
    eventually(lambda: archived(url_of()))
    assert archived(url_of()) == [(":tests/wait-for-file-leased", ":success", 2)]
    assert [(attempt.attempt, attempt.outcome) for attempt in JobAttempt.objects.all()] == [(1, "crash")]
    assert worker.stop() == 0


def test_after_a_kill_that_nobody_sees_it_is_due_when_its_lease_runs_out(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    begun, go = tmp_path / "started", tmp_path / "go"
    job_id = enqueue("tests/wait-for-file-leased-shortly", {"started": str(begun), "go": str(go)})
    dead = spawn("--no-supervisor")
    eventually(begun.exists)
    dead.send(signal.SIGKILL)
    dead.ends()
    [until] = [row["process_at"] for row in rows("proletarian.job")]
    begun.unlink()
    go.touch()
    alive = spawn()
    eventually(lambda: archived(url_of()))
    [done] = ArchivedJob.objects.filter(job_id=job_id)
    assert (done.status, done.attempts, done.process_at) == ("success", 2, until)
    assert alive.stop() == 0


def test_a_worker_that_stops_while_it_runs_gives_it_back_at_once(committed: None, spawn: Spawn, tmp_path: Path) -> None:
    worker, job_id, _ = started(spawn, tmp_path, "--shutdown-timeout", "0.2")
    before = Job.objects.get(job_id=job_id)
    assert before.attempts == 1
    assert worker.stop() == 1
    [job] = Job.objects.due()
    assert (job.job_id, job.attempts) == (job_id, 0)


def test_a_paused_worker_that_goes_on_after_its_lease_loses_the_job_to_another(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    begun, go = tmp_path / "started", tmp_path / "go"
    job_id = enqueue("tests/wait-for-file-leased-shortly", {"started": str(begun), "go": str(go)})
    paused = spawn("--no-supervisor")
    eventually(begun.exists)
    paused.send(signal.SIGSTOP)
    begun.unlink()
    alive = spawn("--no-supervisor")
    eventually(begun.exists)
    paused.send(signal.SIGCONT)
    paused.says("lease-lost")
    assert not archived(url_of())
    go.touch()
    eventually(lambda: archived(url_of()))
    assert archived(url_of()) == [(":tests/wait-for-file-leased-shortly", ":success", 2)]
    assert Entry.objects.filter(job_id=job_id).count() == 1
    assert paused.stop() == alive.stop() == 0
    assert "lease-lost" not in alive.log


def test_a_worker_that_is_cut_off_from_the_database_stops_in_time_and_writes_nothing(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    begun, go, lost = (tmp_path / name for name in ("started", "go", "lost"))
    port = connection.settings_dict["PORT"]
    with Cuttable(int(port)) as network:
        job_id = enqueue("tests/notes-loss", {"started": str(begun), "go": str(go), "lost": str(lost)})
        cut_off = spawn("--no-supervisor", url=url_of().replace(f":{port}/", f":{network.port}/"))
        eventually(begun.exists)
        network.cut()
        begun.unlink()
        eventually(lost.exists)  # though its server never says a word
        alive = spawn("--no-supervisor")
        eventually(begun.exists)
        go.touch()
        eventually(lambda: archived(url_of()))
        network.mend()
        cut_off.says("lease-lost")
        assert cut_off.stop() == alive.stop() == 0
    assert archived(url_of()) == [(":tests/notes-loss", ":success", 2)]
    assert [entry.text for entry in Entry.objects.filter(job_id=job_id)] == ["fenced"]


@pytest.mark.server
def test_long_jobs_keep_no_transaction_open_and_vacuum_from_nothing(tmp_path: Path) -> None:
    with Postgres() as server:
        migrate(server.url)
        locked, leased = (
            measure(server.url, tmp_path, leased=leased, long=2, short=1000, seconds=2) for leased in (False, True)
        )
    assert leased.oldest < 1
    assert leased.dead == 0
    # So that both are seen to be measured.
    assert locked.oldest > 2
    assert locked.dead >= 1000
