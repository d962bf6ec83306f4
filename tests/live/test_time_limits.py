"""Jobs that run for longer than they may: in a worker of this process, and under a supervisor."""

from __future__ import annotations

import asyncio
import ctypes
import json
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_proletarian import QueueWorker, RetryStrategy, enqueue, enqueue_many, job_handler
from django_proletarian.models import JobAttempt
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.live.events import Events
from tests.live.processes import WorkerProcess, archived, url_of

RunWorker = Callable[..., QueueWorker]
Spawn = Callable[..., WorkerProcess]


def runs_on() -> None:
    for _ in range(10**12):
        pass


def outcomes() -> list[tuple[str, str | None]]:
    return list(JobAttempt.objects.order_by("attempt_id").values_list("outcome", "message"))


def drained(run_worker: RunWorker, **options: Any) -> None:
    assert run_worker(drain=True, **options).join(30)


TOO_LONG = "It ran for longer than its time limit of 0.1 s."


def catches_exceptions() -> None:
    while True:
        try:
            runs_on()
        except Exception:
            Entry.objects.create(text="swallowed")


def in_finally() -> None:
    try:
        raise ValueError
    finally:
        runs_on()


@pytest.mark.parametrize(
    "body",
    [
        runs_on,
        lambda: time.sleep(0.3),  # gets it when it comes back
        lambda: ctypes.PyDLL(None).usleep(300_000),  # the same, and nobody else can run meanwhile
        catches_exceptions,
        in_finally,
    ],
    ids=["loop", "sleep", "C call that holds the GIL", "catches Exception", "in finally"],
)
@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
def test_a_handler_over_its_limit_has_failed(
    run_worker: RunWorker, events: Events, body: Callable[[], object], atomic: bool
) -> None:
    @job_handler("tests/slow", time_limit=0.1, atomic=atomic)
    def slow(payload: object) -> None:
        Entry.objects.create(text="began")
        body()

    job_handler("tests/quick", time_limit=30)(lambda payload: Entry.objects.create(text="quick"))
    enqueue("tests/slow")
    enqueue("tests/quick")

    drained(run_worker)

    assert archived(url_of()) == [(":tests/slow", ":failure", 1), (":tests/quick", ":success", 1)]
    assert outcomes() == [("timeout", TOO_LONG)]
    assert [entry.text for entry in Entry.objects.order_by("pk")] == (["quick"] if atomic else ["began", "quick"])
    [failed] = events["handle-job-exception"]
    assert type(failed["exception"]).__name__ == "JobTimeout"
    assert not events["time-limit-ignored"]


def test_an_async_handler_over_its_limit_is_cancelled(run_worker: RunWorker) -> None:
    seen: list[str] = []

    @job_handler("tests/slow", time_limit=0.1)
    async def slow(payload: object) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    enqueue("tests/slow")
    drained(run_worker)
    assert seen == ["cancelled"]
    assert outcomes() == [("timeout", TOO_LONG)]


def test_it_goes_the_way_of_the_retries(run_worker: RunWorker) -> None:
    told: list[str] = []

    @job_handler(
        "tests/slow",
        time_limit=0.1,
        retry_strategy=RetryStrategy(retries=1, delays=[0]),
        failed_job=lambda job, error: told.append(f"{job.attempts} {type(error).__name__}"),
    )
    def slow(payload: object) -> None:
        runs_on()

    enqueue("tests/slow")
    run_worker()
    eventually(lambda: archived(url_of()))
    assert archived(url_of()) == [(":tests/slow", ":failure", 2)]
    assert [outcome for outcome, _ in outcomes()] == ["timeout", "timeout"]
    assert told == ["2 JobTimeout"]


def test_only_the_handler_is_limited_not_what_is_called_after_it(run_worker: RunWorker) -> None:
    def takes_its_time(*arguments: object) -> None:
        time.sleep(0.2)
        Entry.objects.create(text="told")

    @job_handler("tests/fails", time_limit=0.1, failed_job=takes_its_time, retry_strategy=takes_its_time)
    def fails(payload: object) -> None:
        raise ValueError

    enqueue("tests/fails")
    drained(run_worker)
    assert [outcome for outcome, _ in outcomes()] == ["failure"]
    assert Entry.objects.count() == 2


def test_the_setting_holds_for_handlers_that_have_no_limit_of_their_own(run_worker: RunWorker, settings: Any) -> None:
    settings.PROLETARIAN = {"TIME_LIMIT": 0.1}
    job_handler("tests/default")(lambda payload: runs_on())
    job_handler("tests/own", time_limit=math.inf)(lambda payload: time.sleep(0.3))
    enqueue("tests/default")
    enqueue("tests/own")
    drained(run_worker)
    assert archived(url_of()) == [(":tests/default", ":failure", 1), (":tests/own", ":success", 1)]


def test_a_query_that_was_interrupted_leaves_the_next_job_a_connection_in_order(run_worker: RunWorker) -> None:
    @job_handler("tests/query", time_limit=0.05)
    def query(payload: object) -> None:
        while True:
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM generate_series(1, 1000)")

    enqueue_many([("tests/query", None), ("tests/append", "after")] * 5)
    drained(run_worker)
    assert sorted({(job_type, status) for job_type, status, _ in archived(url_of())}) == [
        (":tests/append", ":success"),
        (":tests/query", ":failure"),
    ]
    assert Entry.objects.count() == 5


def test_without_a_supervisor_a_job_that_ignores_its_limit_is_told_of_and_runs_on(
    run_worker: RunWorker, events: Events, settings: Any
) -> None:
    go = threading.Event()

    @job_handler("tests/stubborn", time_limit=0.05)
    def stubborn(payload: object) -> None:
        try:
            runs_on()
        except BaseException:
            assert go.wait(20)

    settings.PROLETARIAN = {"TIME_LIMIT_GRACE": 0.05}
    job_id = enqueue("tests/stubborn")
    run_worker()
    [ignored] = eventually(lambda: events["time-limit-ignored"])
    assert (ignored["job_id"], ignored["time_limit"]) == (job_id, "0.05 s")
    assert not archived(url_of())
    go.set()
    # It has finished, though late.
    eventually(lambda: archived(url_of()) == [(":tests/stubborn", ":success", 1)])


# -- Under a supervisor ----------------------------------------------------------------------------------------------


def given(**values: Any) -> dict[str, str]:
    return {"settings": "tests.live.given_settings", "PROLETARIAN": json.dumps(values)}


@pytest.mark.parametrize("job_type", ["tests/holds-the-gil", "tests/sleeps", "tests/swallows"])
def test_a_process_whose_job_ignores_its_limit_is_replaced_and_the_job_settled_as_a_crash(
    committed: None, spawn: Spawn, job_type: str
) -> None:
    job_id = enqueue(job_type)
    worker = spawn(**given(TIME_LIMIT=0.2, TIME_LIMIT_GRACE=0.3, MAX_CRASHES=2))
    eventually(lambda: archived(url_of()))
    enqueue("tests/append", "goes on")
    eventually(lambda: len(archived(url_of())) == 2)

    assert archived(url_of())[0] == (f":{job_type}", ":failure", 2)
    assert [outcome for outcome, _ in outcomes()] == ["crash", "crash"]
    assert all("was ended, because the job ran on after its time limit" in str(message) for _, message in outcomes())
    assert worker.log.count("worker-process-hangs") == 2
    assert worker.log.count(f"job_id={job_id} job_type=:{job_type} attempt=") >= 2
    assert len(worker.children) == 3
    assert "worker-process-died" not in worker.log
    assert worker.stop() == 0


def test_the_other_jobs_of_a_process_that_is_replaced_finish_or_are_interrupted_and_count_no_attempt(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    interrupted = tmp_path / "interrupted"
    enqueue("tests/wait-for-file", {"started": str(started), "go": str(go)})
    enqueue("tests/wait-for-stop", str(interrupted))
    worker = spawn("--threads", "3", **given(TIME_LIMIT_GRACE=0.3, MAX_CRASHES=1, SHUTDOWN_TIMEOUT=60))
    eventually(lambda: started.exists() and interrupted.exists())
    enqueue("tests/sleeps-limited")

    worker.says("worker-process-hangs")
    eventually(lambda: "job-interrupted" in worker.log)
    assert not archived(url_of())  # the one that runs may finish first
    assert len(worker.children) == 1
    go.touch()

    eventually(lambda: len(archived(url_of())) == 2)
    assert sorted(archived(url_of())) == [
        (":tests/sleeps-limited", ":failure", 1),
        (":tests/wait-for-file", ":success", 1),
    ]
    [waiting] = rows("proletarian.job")
    assert (waiting["job_type"], waiting["attempts"]) == (":tests/wait-for-stop", 0)
    eventually(lambda: len(worker.children) == 2)
    assert worker.stop() == 0
