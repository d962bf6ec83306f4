"""The chaos suite's plan."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.chaos.plan import Kind, Plan, make_plan


def plan_of(seed: int) -> Plan:
    return make_plan(seed, jobs=2000, seconds=60, threads=10)


def test_a_seed_always_makes_the_same_plan() -> None:
    assert plan_of(1) == plan_of(1)
    assert str(plan_of(1)) == str(plan_of(1))
    assert plan_of(1) != plan_of(2)


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_has_all_jobs_and_every_kind_of_event_in_their_order(seed: int) -> None:
    plan = plan_of(seed)

    jobs = [job for job in plan.jobs().values() if job.job_type != "chaos/poison"]
    assert len(jobs) == 2000
    assert sum(job.job_type == "chaos/atomic" for job in jobs) == 1000
    assert {event.kind for event in plan.events} == set(Kind)
    assert all(0 <= thing.at <= 60 for thing in (*plan.events, *plan.chunks))
    assert list(plan.events) == sorted(plan.events, key=lambda event: event.at)
    assert list(plan.chunks) == sorted(plan.chunks, key=lambda chunk: chunk.at)


@pytest.mark.parametrize("seed", range(10))
def test_no_restart_of_the_server_begins_before_the_last_one_is_over(seed: int) -> None:
    restarts = [event for event in plan_of(seed).events if "PostgreSQL" in event.kind]

    for one, next_one in pairwise(restarts):
        assert one.at + one.seconds < next_one.at
