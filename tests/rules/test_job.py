"""A job outside a worker, as in the tests of a project, and what its handler could ask of one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from django_proletarian import Job, current_job

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB: Job[Any] = Job(
    job_id=UUID("00000000-0000-4000-8000-000000000001"),
    queue="mail",
    job_type="shop/mail",
    payload={"secret": 1},
    attempts=1,
    enqueued_at=NOW,
    process_at=NOW,
)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda job: pickle.loads(pickle.dumps(job))])
def test_a_copy_is_equal(copied: Callable[[Job[Any]], Job[Any]]) -> None:
    assert copied(JOB) == JOB


def test_payloads_are_not_in_its_repr() -> None:
    assert "secret" not in repr(JOB)


def test_nobody_asks_it_to_stop() -> None:
    assert JOB.stop_requested is False
    assert JOB.wait_or_stop(0.001) is False


def test_progress_is_checked_and_told_to_nobody() -> None:
    JOB.progress(3, 10, "page 4")
    with pytest.raises(ValueError, match="done is 'three', not a number"):
        JOB.progress("three")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda job: job.checkpoint(1), "checkpoint"),
        (lambda job: job.last_checkpoint, "last_checkpoint"),
        (lambda job: job.fence(), "fence"),
    ],
)
def test_what_takes_a_worker_says_so(ask: Callable[[Job[Any]], object], name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"job\.{name} works while a worker runs the job's handler"):
        ask(JOB)


def test_no_job_runs_here() -> None:
    with pytest.raises(RuntimeError, match="works in a handler that a worker runs"):
        current_job()
