"""A stop that interrupts running handlers: those that say they may be, and those that are `async`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from asgiref.sync import sync_to_async

from django_proletarian import Job, JobInterrupted, QueueWorker, enqueue, enqueue_many, job_handler
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.live.events import Events
from tests.live.processes import archived, unlocked_jobs, url_of

RunWorker = Callable[..., QueueWorker]

plain_or_atomic = pytest.mark.parametrize("atomic", [False, True])


def busy(started: threading.Event) -> None:
    """Look at nothing and wait for nothing, until interrupted."""
    started.set()
    for _ in range(10**12):
        pass


@plain_or_atomic
def test_a_stop_interrupts_a_handler_that_may_be_whatever_it_does(
    run_worker: RunWorker, events: Events, atomic: bool
) -> None:
    started = threading.Event()

    @job_handler("tests/runs-on", interruptible=True, atomic=atomic)
    def never_ends(payload: object) -> None:
        Entry.objects.create(text="written")
        busy(started)

    enqueue("tests/runs-on")
    before = rows("proletarian.job")
    worker = run_worker()
    assert started.wait(20)

    assert worker.stop() is True

    assert rows("proletarian.job") == before
    assert unlocked_jobs(url_of()) == [(":tests/runs-on", 0)]
    assert Entry.objects.count() == (0 if atomic else 1)
    assert events.names == [
        "handling-job",
        "shutting-down",
        "job-interrupted",
        "worker-interrupted",
        "completed-shutdown",
    ]


def test_a_stop_interrupts_the_handlers_of_all_threads(run_worker: RunWorker) -> None:
    meeting = threading.Barrier(4, timeout=20)

    @job_handler("tests/runs-on", interruptible=True)
    def never_ends(payload: object) -> None:
        meeting.wait()
        busy(threading.Event())

    for _ in range(3):
        enqueue("tests/runs-on")
    worker = run_worker(threads=3)
    meeting.wait()
    assert worker.stop() is True
    assert unlocked_jobs(url_of()) == [(":tests/runs-on", 0)] * 3


def test_a_handler_may_clean_up_when_it_is_interrupted(run_worker: RunWorker) -> None:
    started = threading.Event()

    @job_handler("tests/runs-on", interruptible=True)
    def tidy(payload: object) -> None:
        try:
            busy(started)
        finally:
            Entry.objects.create(text="cleaned up")

    enqueue("tests/runs-on")
    worker = run_worker()
    assert started.wait(20)
    assert worker.stop() is True
    assert Entry.objects.count() == 1
    assert unlocked_jobs(url_of()) == [(":tests/runs-on", 0)]


def test_a_handler_that_catches_its_interrupt_and_returns_has_finished(run_worker: RunWorker) -> None:
    started = threading.Event()

    @job_handler("tests/runs-on", interruptible=True)
    def stubborn(payload: object) -> None:
        try:
            busy(started)
        except JobInterrupted:
            Entry.objects.create(text="finished all the same")

    enqueue("tests/runs-on")
    worker = run_worker()
    assert started.wait(20)
    assert worker.stop() is True
    assert archived(url_of()) == [(":tests/runs-on", ":success", 1)]


def test_a_handler_that_stops_its_own_worker_is_interrupted_there(run_worker: RunWorker) -> None:
    workers: list[QueueWorker] = []
    known = threading.Event()

    @job_handler("tests/stops", interruptible=True)
    def stops(payload: object) -> None:
        assert known.wait(20)
        workers[0].stop()
        Entry.objects.create(text="not interrupted")

    enqueue("tests/stops")
    workers.append(run_worker(threads=2))
    known.set()
    assert workers[0].join(20)
    assert not Entry.objects.exists()
    assert unlocked_jobs(url_of()) == [(":tests/stops", 0)]


# Some of them arrive in what the garbage collector calls, where Python drops every exception, and says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@plain_or_atomic
@pytest.mark.parametrize("batch_size", [1, 5])
def test_jobs_that_are_interrupted_anywhere_leave_their_worker_in_order(
    run_worker: RunWorker, events: Events, atomic: bool, batch_size: int
) -> None:
    started = threading.Event()

    @job_handler("tests/write", interruptible=True, atomic=atomic, advanced=True)
    def write(job: Job) -> None:
        started.set()
        for _ in range(10):
            Entry.objects.create(text="written", job_id=job.job_id)

    ids = enqueue_many([("tests/write", None)] * 20)
    # Each worker is stopped wherever its threads happen to be by then, most of them in the middle of a query.
    for number in range(8):
        started.clear()
        worker = run_worker(threads=2, batch_size=batch_size)
        assert started.wait(20)
        for _ in range(number * 5000):
            pass
        assert worker.stop() is True
    assert len(rows("proletarian.job")) + len(archived(url_of())) == 20
    assert len(unlocked_jobs(url_of())) == len(rows("proletarian.job"))
    assert {(status, attempts) for _, status, attempts in archived(url_of())} <= {(":success", 1)}

    worker = run_worker(threads=2, drain=True)
    assert worker.join(20)

    assert set(archived(url_of())) == {(":tests/write", ":success", 1)}
    assert {row["job_id"] for row in rows("proletarian.archived_job", "job_id")} == set(ids)
    if atomic:
        assert Entry.objects.count() == 20 * 10
    assert "job-interrupted" in events.names
    assert set(events.names) & {"handle-job-exception", "job-worker-error"} == set()


# -- async -----------------------------------------------------------------------------------------------------------


@plain_or_atomic
def test_a_stop_cancels_an_async_handler(run_worker: RunWorker, events: Events, atomic: bool) -> None:
    started = threading.Event()

    @job_handler("tests/async", atomic=atomic)
    async def never_ends(payload: object) -> None:
        await Entry.objects.acreate(text="written")
        started.set()
        await asyncio.Event().wait()

    enqueue("tests/async")
    before = rows("proletarian.job")
    worker = run_worker()
    assert started.wait(20)

    assert worker.stop() is True

    assert rows("proletarian.job") == before
    assert unlocked_jobs(url_of()) == [(":tests/async", 0)]
    assert Entry.objects.count() == (0 if atomic else 1)
    assert "job-interrupted" in events.names


def test_an_async_handler_that_says_so_is_not_cancelled(run_worker: RunWorker) -> None:
    started = threading.Event()

    @job_handler("tests/async", interruptible=False, advanced=True)
    async def finishes(job: Job) -> None:
        started.set()
        while not job.stop_requested:
            await asyncio.sleep(0.01)
        await Entry.objects.acreate(text="finished")

    enqueue("tests/async")
    worker = run_worker()
    assert started.wait(20)
    assert worker.stop() is True
    assert archived(url_of()) == [(":tests/async", ":success", 1)]
    assert Entry.objects.count() == 1


def test_an_async_handler_that_catches_its_cancellation_and_returns_has_finished(run_worker: RunWorker) -> None:
    started = threading.Event()

    @job_handler("tests/async")
    async def stubborn(payload: object) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await Entry.objects.acreate(text="finished all the same")

    enqueue("tests/async")
    worker = run_worker()
    assert started.wait(20)
    assert worker.stop() is True
    assert archived(url_of()) == [(":tests/async", ":success", 1)]
    assert Entry.objects.count() == 1


def test_an_async_handler_is_cancelled_while_it_waits_for_a_synchronous_call_which_ends_first(
    run_worker: RunWorker,
) -> None:
    started, go, done = threading.Event(), threading.Event(), threading.Event()

    def synchronous() -> None:
        started.set()
        assert go.wait(20)
        done.set()

    @job_handler("tests/async")
    async def calls(payload: object) -> None:
        await sync_to_async(synchronous)()

    enqueue("tests/async")
    worker = run_worker()
    assert started.wait(20)
    assert worker.stop(timeout=0.05) is False
    # Nobody else may have the job while a part of it runs.
    assert unlocked_jobs(url_of()) == []
    go.set()
    assert worker.join(20)
    assert done.is_set()
    assert unlocked_jobs(url_of()) == [(":tests/async", 0)]


# -- Looking for a stop ----------------------------------------------------------------------------------------------


def test_threads_that_a_handler_starts_see_the_stop(run_worker: RunWorker) -> None:
    seen: list[bool] = []
    started = threading.Event()

    @job_handler("tests/threads", advanced=True)
    def starts_threads(job: Job) -> None:
        threads = [
            threading.Thread(target=lambda: seen.append(job.wait_or_stop(20))),
            threading.Thread(target=lambda: seen.append(job.wait_or_stop(20) and job.stop_requested)),
        ]
        for thread in threads:
            thread.start()
        started.set()
        for thread in threads:
            thread.join(20)

    enqueue("tests/threads")
    worker = run_worker()
    assert started.wait(20)
    assert worker.stop() is True
    assert seen == [True, True]


def test_threads_of_asyncio_see_the_stop(run_worker: RunWorker) -> None:
    seen: list[bool] = []
    started = threading.Event()

    @job_handler("tests/async", advanced=True)
    async def starts_threads(job: Job) -> None:
        started.set()
        seen.append(await asyncio.shield(asyncio.to_thread(job.wait_or_stop, 20)))

    enqueue("tests/async")
    worker = run_worker()
    assert started.wait(20)
    # The handler is cancelled, and its job settled when the thread that it started has ended.
    assert worker.stop() is True
    eventually(lambda: unlocked_jobs(url_of()))
    assert unlocked_jobs(url_of()) == [(":tests/async", 0)]
