"""What will happen, decided before it begins: the jobs, when they are enqueued, and every event. The same for one seed.

Pure. What an event hits, of all processes and connections that are there at its time, depends on the machine.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal
from uuid import UUID

from tests.chaos.project.work import ALWAYS, Work

JobType = Literal["chaos/atomic", "chaos/plain", "chaos/leased", "chaos/poison"]
SUPERVISORS = ("direct", "pooled")


class Kind(StrEnum):
    """What can happen, as the report calls it."""

    KILL_CHILD = "kill a child"
    KILL_SUPERVISOR = "kill a supervisor"
    TERMINATE_BACKENDS = "terminate backends"
    RESTART_SERVER_FAST = "restart PostgreSQL, fast"
    RESTART_SERVER_IMMEDIATE = "restart PostgreSQL, immediate"
    RESTART_POOLER = "restart PgBouncer"
    PAUSE_CHILD = "pause a child"
    PAUSE_SUPERVISOR = "pause a supervisor"
    HANG_UP = "SIGHUP"


# How often, beside the restarts of the server, which are spread evenly.
WEIGHTS = {
    Kind.KILL_CHILD: 8,
    Kind.KILL_SUPERVISOR: 3,
    Kind.TERMINATE_BACKENDS: 8,
    Kind.RESTART_POOLER: 3,
    Kind.PAUSE_CHILD: 8,
    Kind.PAUSE_SUPERVISOR: 2,
    Kind.HANG_UP: 3,
}
SECONDS_BETWEEN_EVENTS = 1.5
SECONDS_BETWEEN_RESTARTS = 15  # of the server

# Seconds; what is not here is over at once.
LASTS_AT_MOST = {
    Kind.PAUSE_CHILD: 4.0,
    Kind.PAUSE_SUPERVISOR: 4.0,
    Kind.RESTART_POOLER: 1.0,
    Kind.RESTART_SERVER_FAST: 2.0,
    Kind.RESTART_SERVER_IMMEDIATE: 2.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that is done to the workers, or to what they need."""

    at: float  # seconds from the start
    kind: Kind
    supervisor: str  # where the event is about one
    seconds: float  # until it is over: of a pause, or without the server; 0 for what happens at once
    number: int  # picks one of the processes, or says how many backends

    def __str__(self) -> str:
        about_server = self.kind in (Kind.RESTART_SERVER_FAST, Kind.RESTART_SERVER_IMMEDIATE, Kind.RESTART_POOLER)
        about = "" if about_server or self.kind is Kind.TERMINATE_BACKENDS else f" of {self.supervisor}"
        lasting = f", for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:6.1f} s  {self.kind}{about}{lasting}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job, and when it is due."""

    job_id: UUID
    job_type: JobType
    work: Work
    due_in: float  # seconds from its enqueueing


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Jobs that are enqueued in one transaction, together with a row that says so, or not at all."""

    number: int
    at: float  # seconds from the start
    jobs: tuple[PlannedJob, ...]
    rolled_back: bool  # on purpose: none of its jobs may ever be seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All of it."""

    seed: int
    seconds: float
    chunks: tuple[Chunk, ...]  # in the order of their time, as are the events
    events: tuple[Event, ...]

    def jobs(self) -> dict[UUID, PlannedJob]:
        """The jobs that must be run."""
        return {job.job_id: job for chunk in self.chunks if not chunk.rolled_back for job in chunk.jobs}

    def __str__(self) -> str:
        jobs = self.jobs().values()
        kinds = Counter(job.job_type for job in jobs)
        failing = sum(0 < job.work.failures < ALWAYS for job in jobs)
        hopeless = sum(job.work.failures == ALWAYS for job in jobs)
        return "\n".join(
            [
                f"Seed {self.seed}: {len(jobs)} jobs in {len(self.chunks)} transactions, {len(self.events)} events in "
                f"{self.seconds:g} s.",
                f"Jobs: {kinds['chaos/atomic']} atomic, {kinds['chaos/plain']} plain, {kinds['chaos/leased']} leased, "
                f"{kinds['chaos/poison']} poison; {failing} fail at first, {hopeless} always; together they take "
                f"{sum(job.work.seconds for job in jobs):.0f} s.",
                *map(str, self.events),
            ]
        )


def make_plan(seed: int, *, jobs: int, seconds: float, threads: int) -> Plan:
    """The plan of `seed`: so many jobs, events for so many seconds; `threads` is how many jobs run at once."""
    rng = random.Random(seed)
    events = sorted([*_events(rng, seconds), *_restarts(rng, seconds)], key=lambda event: event.at)
    return Plan(seed=seed, seconds=seconds, chunks=tuple(_chunks(rng, jobs, seconds, threads)), events=tuple(events))


def _events(rng: random.Random, seconds: float) -> Iterator[Event]:
    # Each kind at least once, however short the plan.
    kinds = list(WEIGHTS)
    kinds += rng.choices(kinds, list(WEIGHTS.values()), k=max(0, round(seconds / SECONDS_BETWEEN_EVENTS) - len(kinds)))
    for kind in kinds:
        yield Event(
            at=rng.uniform(0, seconds),
            kind=kind,
            supervisor=rng.choice(SUPERVISORS),
            seconds=rng.uniform(0.1, LASTS_AT_MOST[kind]) if kind in LASTS_AT_MOST else 0,
            number=rng.randrange(1000),
        )


def _restarts(rng: random.Random, seconds: float) -> Iterator[Event]:
    """Restarts of the server, each within its own stretch of the time, so that none begins while it is down."""
    number = max(2, round(seconds / SECONDS_BETWEEN_RESTARTS))
    modes = [Kind.RESTART_SERVER_FAST, Kind.RESTART_SERVER_IMMEDIATE]
    rng.shuffle(modes)
    stretch = seconds / number
    for turn in range(number):
        yield Event(
            at=turn * stretch + rng.uniform(0, stretch / 2),
            kind=modes[turn % 2],
            supervisor=rng.choice(SUPERVISORS),
            seconds=rng.uniform(0.1, LASTS_AT_MOST[Kind.RESTART_SERVER_FAST]),
            number=rng.randrange(1000),
        )


def _chunks(rng: random.Random, jobs: int, seconds: float, threads: int) -> Iterator[Chunk]:
    """The jobs, half of them at the start and the others while the events happen."""
    # The share of slow ones is such that the workers are busy for a third of the time.
    slow = min(0.5, 0.35 * threads * seconds / jobs / 0.5)
    planned = [_job(rng, turn, slow) for turn in range(jobs)]
    planned += [_poison(rng) for _ in range(max(2, round(seconds / 60)))]
    rng.shuffle(planned)
    number = enqueued = 0
    while enqueued < len(planned):
        rolled_back = rng.random() < 0.05
        size = rng.choice([1, 1, 1, 5, 20, max(1, jobs // 100)])
        if rolled_back:
            chunk = [_job(rng, turn, slow) for turn in range(size)]
        else:
            chunk = planned[enqueued : enqueued + size]
            enqueued += len(chunk)
        # The last come a little before the end.
        at = max(0.0, (enqueued / len(planned) - 0.5) * 2) * seconds * 0.9
        yield Chunk(number=number, at=at, jobs=tuple(chunk), rolled_back=rolled_back)
        number += 1


def _job(rng: random.Random, turn: int, slow: float) -> PlannedJob:
    failures = rng.choices([0, 1, 2, ALWAYS], [80, 8, 7, 5])[0]
    job_type: JobType = "chaos/atomic" if turn % 2 else "chaos/plain" if turn % 10 else "chaos/leased"
    # Leased ones are there to be caught in the middle.
    often, longest = (2 * slow, 2) if job_type == "chaos/leased" else (slow, 1)
    return PlannedJob(
        job_id=_job_id(rng),
        job_type=job_type,
        work=Work(round(rng.uniform(0.05, longest) if rng.random() < often else rng.uniform(0, 0.02), 3), failures),
        due_in=round(rng.uniform(0.1, 5), 1) if rng.random() < 0.1 else 0,
    )


def _poison(rng: random.Random) -> PlannedJob:
    return PlannedJob(job_id=_job_id(rng), job_type="chaos/poison", work=Work(rng.choice([0.0, 1.0]), ALWAYS), due_in=0)


def _job_id(rng: random.Random) -> UUID:
    return UUID(int=rng.getrandbits(128), version=4)
