"""Workers and priorities: who is woken, and in which order threads take what is due."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from django_proletarian import NewJob, QueueWorker, enqueue, enqueue_many, job_handler
from tests.conftest import eventually
from tests.live.processes import archived, claims_of, url_of

RunWorker = Callable[..., QueueWorker]

THREADS = 4


def test_four_threads_take_a_thousand_jobs_in_the_order_of_three_priorities(run_worker: RunWorker) -> None:
    begun: list[int] = []
    job_handler("tests/note")(begun.append)
    priorities = [10, 0, -5] * 334
    random.Random(1).shuffle(priorities)
    enqueue_many(NewJob("tests/note", priority, queue="mail", priority=priority) for priority in priorities)

    run_worker("mail", threads=THREADS)

    eventually(lambda: len(begun) == len(priorities))
    for place, priority in enumerate(begun):
        overtaken = sum(other > priority for other in begun[place:])
        assert overtaken < THREADS, f"{overtaken} jobs of a higher priority began after job {place}"


def test_a_sleeping_worker_is_woken_by_a_job_of_any_priority(run_worker: RunWorker, settings: Any) -> None:
    settings.PROLETARIAN = {"IDLE_POLLING_INTERVAL": 1000}
    job_handler("tests/pass")(lambda payload: None)
    run_worker("mail", worker_id="sleeper")
    eventually(lambda: claims_of(url_of(), "sleeper"))
    for done, priority in enumerate((10, -10, 0), start=1):
        enqueue("tests/pass", queue="mail", priority=priority)
        eventually(lambda done=done: len(archived(url_of())) == done)  # type: ignore[misc]


def test_a_busy_worker_comes_by_a_higher_priority_before_its_own_jobs_are_done(run_worker: RunWorker) -> None:
    begun: list[str] = []

    @job_handler("tests/note")
    def note(payload: str) -> None:
        if not begun:
            enqueue("tests/note", "urgent", queue="mail", priority=1)
        begun.append(payload)
        if "urgent" not in begun:
            # As many as it takes: there is always one more that is due.
            enqueue("tests/note", "usual", queue="mail")

    enqueue_many(NewJob("tests/note", "usual", queue="mail") for _ in range(100))
    run_worker("mail")
    eventually(lambda: "urgent" in begun)
