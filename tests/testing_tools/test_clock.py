"""A clock that stands still, and the time that time-machine and freezegun pretend: all that concerns jobs obeys."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.test import override_settings
from freezegun import freeze_time

from django_proletarian import RetryStrategy, conf, enqueue, enqueue_many, job_handler
from django_proletarian.models import ArchivedJob
from django_proletarian.testing import (
    FrozenClock,
    enqueued_jobs,
    frozen_time,
    live_worker,
    obeying_frozen_time,
    run_jobs,
)

THEN = datetime(2036, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.django_db
def test_enqueue_workers_and_retries_obey_a_frozen_clock() -> None:
    job_handler("tests/fail", retry_strategy=RetryStrategy(retries=1, delays=[3600]))(lambda payload: 1 / 0)
    with FrozenClock(THEN) as clock:
        enqueue("tests/fail", process_in=HOUR)
        [job] = enqueued_jobs()
        assert (job.enqueued_at, job.process_at) == (THEN, THEN + HOUR)
        assert run_jobs() == []

        assert clock.advance(HOUR) == THEN + HOUR
        assert [run.outcome for run in run_jobs(raise_errors=False)] == ["retry"]
        assert run_jobs() == []

        assert clock.move_to(THEN + 2 * HOUR) == clock()
        assert [run.outcome for run in run_jobs(raise_errors=False)] == ["failure"]
    assert ArchivedJob.objects.get().finished_at == THEN + 2 * HOUR
    assert conf.now() is None


def test_a_clock_moves_by_seconds_too_and_starts_now_if_not_told_when() -> None:
    clock = FrozenClock()
    began = clock()
    assert abs(datetime.now(UTC) - began) < timedelta(minutes=5)
    assert clock.advance(1.5) - began == timedelta(seconds=1.5)
    assert clock() == clock()


def test_a_frozen_clock_decorates_a_function() -> None:
    @FrozenClock(THEN)
    def now() -> datetime | None:
        return conf.now()

    assert (now(), now(), conf.now()) == (THEN, THEN, None)


def test_a_time_without_a_zone_is_local_or_an_error() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        FrozenClock(datetime(2036, 1, 1))  # as somebody may write
    with override_settings(USE_TZ=False):
        assert FrozenClock(datetime(2036, 1, 1, 13))() == THEN


def travel(to: datetime) -> AbstractContextManager[Any]:
    return time_machine.travel(to, tick=False)


def freeze(to: datetime) -> AbstractContextManager[Any]:
    frozen: AbstractContextManager[Any] = freeze_time(to)
    return frozen


@pytest.mark.django_db
@pytest.mark.parametrize("pretend", [travel, freeze], ids=["time-machine", "freezegun"])
def test_jobs_go_by_the_time_that_is_pretended(pretend: Callable[[datetime], AbstractContextManager[Any]]) -> None:
    job_handler("tests/fail", retry_strategy=RetryStrategy(retries=1, delays=[3600]))(lambda payload: 1 / 0)
    with obeying_frozen_time():
        with pretend(THEN):
            enqueue("tests/fail", process_in=HOUR)
            enqueue_many([("tests/fail", number) for number in range(2)])
            assert [job.enqueued_at for job in enqueued_jobs()] == [THEN] * 3
            assert [job.process_at for job in enqueued_jobs()] == [THEN + HOUR, THEN, THEN]
        with pretend(THEN + HOUR):
            assert [run.outcome for run in run_jobs(raise_errors=False)] == ["retry"] * 3
            assert {job.process_at for job in enqueued_jobs()} == {THEN + 2 * HOUR}
        with pretend(THEN + 2 * HOUR):
            assert [run.outcome for run in run_jobs(raise_errors=False)] == ["failure"] * 3
    assert {job.finished_at for job in ArchivedJob.objects.all()} == {THEN + 2 * HOUR}


def test_without_pretence_the_databases_clock_counts() -> None:
    with obeying_frozen_time():
        assert (frozen_time(), conf.now()) == (None, None)
        with travel(THEN):
            assert conf.now() == THEN
        assert conf.now() is None
    with travel(THEN):
        assert conf.now() is None


def test_a_projects_own_clock_counts_more() -> None:
    with override_settings(PROLETARIAN={"CLOCK": lambda: THEN}), obeying_frozen_time(), travel(THEN + HOUR):
        assert conf.now() == THEN


def test_a_live_worker_obeys_a_frozen_clock(committed: None) -> None:
    job_handler("tests/nothing")(lambda payload: None)
    with FrozenClock(THEN) as clock, live_worker(polling_interval=0.02) as worker:
        job_id = enqueue("tests/nothing", process_in=HOUR)
        clock.advance(HOUR)
        assert worker.wait_for(job_id).finished_at == THEN + HOUR
