"""How idle threads share the polling, and how a burst of jobs wakes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from django_proletarian import QueueWorker, enqueue, enqueue_many, job_handler, signals
from django_proletarian.listener import Listener
from django_proletarian.new_jobs import NewJob
from tests.conftest import eventually
from tests.live.processes import archived, claims_of, url_of

RunWorker = Callable[..., QueueWorker]


class Polls:
    """When the threads of this process polled; a receiver of the signal."""

    def __init__(self) -> None:
        self.times: list[float] = []  # written by worker threads, read by the test
        self.threads: set[object] = set()

    def __call__(self, *, worker_thread_id: int, **data: object) -> None:
        self.times.append(time.monotonic())
        self.threads.add(worker_thread_id)


def test_fifty_idle_threads_poll_once_an_interval_through_one_connection(
    run_worker: RunWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where nothing can be heard, behind a pooler: there the polling interval holds.
    monkeypatch.setattr(Listener, "doze", lambda self: False)
    polls = Polls()
    signals.polling_for_jobs.connect(polls)
    try:
        run_worker(worker_id="fifty", threads=50, polling_interval=0.02)
        eventually(lambda: len(polls.times) >= 20)
        assert len(claims_of(url_of(), "fifty")) == 1
    finally:
        signals.polling_for_jobs.disconnect(polls)
    assert len(polls.threads) == 1
    # Between two polls lies a whole interval; the first poll comes at once.
    assert min(later - earlier for earlier, later in zip(polls.times, polls.times[1:], strict=False)) >= 0.02


def test_a_burst_of_jobs_wakes_as_many_threads_as_it_needs_and_no_more(run_worker: RunWorker) -> None:
    # Nobody gets past the barrier before all eight are there, so eight jobs run at once or none ends.
    barrier = threading.Barrier(8, timeout=20)
    job_handler("tests/meet")(lambda payload: barrier.wait())
    run_worker(worker_id="burst", threads=50)
    eventually(lambda: claims_of(url_of(), "burst"))

    enqueue_many([NewJob("tests/meet", number) for number in range(8)])

    eventually(lambda: len(archived(url_of())) == 8)
    assert set(archived(url_of())) == {(":tests/meet", ":success", 1)}
    assert len(claims_of(url_of(), "burst")) <= 10


def test_a_burst_wakes_threads_that_sleep_for_long(run_worker: RunWorker) -> None:
    barrier = threading.Barrier(8, timeout=20)
    job_handler("tests/meet")(lambda payload: barrier.wait())
    enqueue_many([NewJob("tests/meet", number) for number in range(8)])

    # Only the first poll comes by itself; after it the threads have to wake each other.
    run_worker(threads=8, polling_interval=1000)

    eventually(lambda: len(archived(url_of())) == 8)


def test_while_one_job_runs_for_long_the_others_are_run_by_other_threads(run_worker: RunWorker) -> None:
    started, go = threading.Event(), threading.Event()

    @job_handler("tests/block")
    def block(payload: object) -> None:
        started.set()
        assert go.wait(20)

    job_handler("tests/pass")(lambda payload: None)
    run_worker(threads=2)
    enqueue("tests/block")
    assert started.wait(20)

    enqueue_many([NewJob("tests/pass", number) for number in range(50)])

    eventually(lambda: len(archived(url_of())) == 50)
    go.set()
    eventually(lambda: len(archived(url_of())) == 51)
