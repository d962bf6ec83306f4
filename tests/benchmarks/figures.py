"""The figures: what is measured for each, beside what, and what it should reach.

A figure's function is called once a round and returns its values by name. What is compared is measured in the same
call, one after the other, in the other order every second round.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import psycopg

from django_proletarian import enqueue
from tests.benchmarks import archive, loops, tasks
from tests.benchmarks.pgbench import (
    FIVE_STATEMENTS,
    JOBS_IN_A_BATCH,
    ONE_STATEMENT_FOR_100_JOBS,
    transactions_a_second,
)
from tests.benchmarks.server import INSERT_ROW, QUEUE, Server
from tests.benchmarks.workers import command_knows, drain, idle_worker, tenths

RATIO = "ratio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is done for each measurement."""

    jobs: int = 10_000
    batch_jobs: int = 50_000
    atomic_jobs: int = 3_000
    few: int = 10_000
    many: int = 1_000_000
    jobs_beside_old_transaction: int = 100_000
    enqueued: int = 6_000
    bulk: int = 100_000
    pruned: int = 1_000_000
    pickups: int = 80
    scheduled_jobs: int = 20
    idle_seconds: float = 10.0
    their_tasks: int = 10_000


QUICK = Sizes(
    jobs=3_000,
    batch_jobs=20_000,
    atomic_jobs=1_000,
    few=2_000,
    many=100_000,
    jobs_beside_old_transaction=10_000,
    enqueued=2_000,
    bulk=20_000,
    pruned=400_000,
    pickups=30,
    scheduled_jobs=10,
    idle_seconds=5.0,
    their_tasks=500,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a figure measures with."""

    server: Server
    sizes: Sizes
    round: int

    def take(self, measures: dict[str, Callable[[], float]]) -> dict[str, float]:
        """Take the measures, one after the other."""
        order = list(measures)
        taken = {name: measures[name]() for name in (reversed(order) if self.round % 2 else order)}
        return {name: taken[name] for name in order}

    def compare(self, **measures: Callable[[], float]) -> dict[str, float]:
        """Take two measures; the ratio is the first divided by the second."""
        taken = self.take(measures)
        ours, reference = taken.values()
        return {**taken, RATIO: ours / reference}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the median of a value should be; `given` names another value and what that must be for this to count."""

    value: str = RATIO
    at_least: float | None = None
    at_most: float | None = None
    given: tuple[str, float] | None = None

    def __str__(self) -> str:
        return f"≥ {self.at_least:,}" if self.at_least is not None else f"≤ {self.at_most:,}"

    def reached(self, medians: dict[str, float]) -> bool | None:
        """Whether it is; None if it does not count, or the value was not measured."""
        if self.value not in medians or (self.given is not None and medians[self.given[0]] < self.given[1]):
            return None
        median = medians[self.value]
        return median >= self.at_least if self.at_least is not None else median <= (self.at_most or 0)


class Skipped(Exception):
    """The figure can't be measured here; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    title: str
    unit: str
    measure: Callable[[Bench], dict[str, float]]
    goals: tuple[Goal, ...]


# -- Drains ----------------------------------------------------------------------------------------------------------


def drain_beside_pgbench(processes: int, threads: int, clients: int, bench: Bench) -> dict[str, float]:
    server, jobs = bench.server, bench.sizes.jobs

    def worker() -> float:
        server.fill(jobs)
        return drain(server, jobs, processes=processes, threads=threads)

    def pgbench() -> float:
        server.fill(jobs)
        return transactions_a_second(server, FIVE_STATEMENTS, clients, jobs)

    return bench.compare(worker=worker, pgbench=pgbench)


def drain_in_batches(bench: Bench) -> dict[str, float]:
    if not command_knows("--batch-size"):
        raise Skipped("proletarian_worker has no --batch-size")
    server, jobs = bench.server, bench.sizes.batch_jobs

    def worker(processes: int, threads: int) -> float:
        server.fill(jobs)
        arguments = ("--batch-size", str(JOBS_IN_A_BATCH))
        return drain(server, jobs, processes=processes, threads=threads, arguments=arguments)

    def pgbench(clients: int) -> float:
        server.fill(jobs)
        batches = jobs // JOBS_IN_A_BATCH
        return transactions_a_second(server, ONE_STATEMENT_FOR_100_JOBS, clients, batches) * JOBS_IN_A_BATCH

    shapes = ((1, 1), (1, 4), (2, 2))
    workers = {f"worker {shape[0]} × {shape[1]}": partial(worker, *shape) for shape in shapes}
    clients = {f"pgbench, clients: {clients}": partial(pgbench, clients) for clients in (1, 4)}
    taken = bench.take({**workers, **clients})
    ours, reference = max(taken[name] for name in workers), max(taken[name] for name in clients)
    return {**taken, "worker, best": ours, "pgbench, best": reference, RATIO: ours / reference}


def drain_atomic(bench: Bench) -> dict[str, float]:
    server, jobs = bench.server, bench.sizes.atomic_jobs

    def worker() -> float:
        server.fill(jobs, INSERT_ROW)
        return drain(server, jobs)

    def bare_psycopg() -> float:
        server.fill(jobs, INSERT_ROW)
        return loops.six_statements(server, jobs)

    return bench.compare(worker=worker, bare_psycopg=bare_psycopg)


def drain_with_many_waiting(bench: Bench) -> dict[str, float]:
    server, sizes = bench.server, bench.sizes

    def drain_some_of(waiting: int) -> float:
        server.fill(waiting)
        return drain(server, sizes.few, arguments=("--max-jobs", str(sizes.few)))

    return bench.compare(many_waiting=partial(drain_some_of, sizes.many), few_waiting=partial(drain_some_of, sizes.few))


def drain_with_many_scheduled(bench: Bench) -> dict[str, float]:
    server, sizes = bench.server, bench.sizes

    def drain_beside(scheduled: int) -> float:
        server.fill(sizes.few, scheduled=scheduled)
        return drain(server, sizes.few)

    return bench.compare(many_scheduled=partial(drain_beside, sizes.many), none_scheduled=partial(drain_beside, 0))


def drain_beside_scheduled_priorities(bench: Bench) -> dict[str, float]:
    server, sizes = bench.server, bench.sizes

    def drain_beside(scheduled: int) -> float:
        server.fill(sizes.jobs, scheduled=scheduled, scheduled_queue=f"{QUEUE}+100")
        return drain(server, sizes.jobs)

    return bench.compare(many_scheduled=partial(drain_beside, sizes.many), none_scheduled=partial(drain_beside, 0))


def drain_beside_old_transaction(bench: Bench) -> dict[str, float]:
    server, jobs = bench.server, bench.sizes.jobs_beside_old_transaction
    server.fill(jobs)
    with psycopg.connect(server.url) as old:
        old.execute("SELECT txid_current()")
        drain(server, jobs)
    first, *_, last = tenths(server)
    return {"first_tenth": first, "last_tenth": last, RATIO: last / first}


def drain_with_archive_index(bench: Bench) -> dict[str, float]:
    return bench.compare(**archive.drain_with_and_without_index(bench.server, bench.sizes.jobs))


def drain_beside_pruning(bench: Bench) -> dict[str, float]:
    measures = archive.drain_beside_pruning(bench.server, bench.sizes.jobs, bench.sizes.pruned)
    taken = bench.take(measures)
    ratios = {f"{RATIO}, {name}": taken[name] / taken["alone"] for name in ("beside_retention", "beside_prune_command")}
    return {**taken, **ratios}


def drain_tasks(bench: Bench) -> dict[str, float]:
    if not tasks.have_theirs():
        raise Skipped('django-tasks-db is not installed: pip install -e ".[bench]"')
    return tasks.enqueue_and_drain(bench.server, bench.sizes.jobs, bench.sizes.their_tasks)


# -- Enqueue ---------------------------------------------------------------------------------------------------------


def enqueue_one_at_a_time(bench: Bench) -> dict[str, float]:
    bench.server.empty()
    with loops.bare_inserts(bench.server) as insert_each:
        loops.enqueue_each(100)
        insert_each(100)
        rates = loops.in_chunks(bench.sizes.enqueued, {"enqueue": loops.enqueue_each, "bare_psycopg": insert_each})
    return {**rates, RATIO: rates["enqueue"] / rates["bare_psycopg"]}


def enqueue_on_threads(bench: Bench) -> dict[str, float]:
    if not loops.enqueue_notifies():
        raise Skipped("enqueue has no code that notifies")
    bench.server.empty()
    loops.on_threads(100)
    rates = loops.in_chunks(
        bench.sizes.enqueued * 2,
        {"enqueue": loops.on_threads, "without_notify": loops.on_threads_without_notify},
    )
    return {**rates, RATIO: rates["enqueue"] / rates["without_notify"]}


def enqueue_in_bulk(bench: Bench) -> dict[str, float]:
    server, jobs = bench.server, bench.sizes.bulk

    def enqueue_many() -> float:
        server.empty()
        return loops.bulk(jobs)

    def bare_copy() -> float:
        server.empty()
        return loops.bare_copy(server, jobs)

    return bench.compare(enqueue_many=enqueue_many, bare_copy=bare_copy)


# -- Idle workers ----------------------------------------------------------------------------------------------------


def latency(bench: Bench) -> dict[str, float]:
    """From the call of enqueue, its commit included, to the handler's first line."""
    taken = []
    with idle_worker(bench.server) as (_, ear):
        for _ in range(bench.sizes.pickups):
            # By chance, so that it is not always the same moment between two polls.
            time.sleep(random.uniform(0.05, 0.25))
            began = time.time()
            enqueue("bench/tell", ear.port)
            handled, _process_at = ear.hear()
            taken.append((handled - began) * 1000)
    return {"median": statistics.median(taken), "95th percentile": statistics.quantiles(taken, n=20)[-1]}


def lateness(bench: Bench) -> dict[str, float]:
    """From process_at to the handler's first line."""
    taken = []
    with idle_worker(bench.server) as (_, ear):
        for _ in range(bench.sizes.scheduled_jobs):
            enqueue("bench/tell", ear.port, process_in=timedelta(seconds=2))
            time.sleep(random.uniform(0.05, 0.25))
        for _ in range(bench.sizes.scheduled_jobs):
            handled, process_at = ear.hear()
            taken.append((handled - process_at) * 1000)
    return {"median": statistics.median(taken), "latest": max(taken)}


def idleness(bench: Bench) -> dict[str, float]:
    """What one idle process of 50 threads sends and uses. A message of several statements is one query."""
    server, seconds = bench.server, bench.sizes.idle_seconds
    with idle_worker(server, "--threads", "50") as (worker, _):
        time.sleep(2)
        server.log_messages(True)
        try:
            time.sleep(1)  # the settings reach sleeping sessions in a moment
            logged, cpu, began = server.log.stat().st_size, worker.cpu_seconds(), time.perf_counter()
            time.sleep(seconds)
            after, took = worker.cpu_seconds(), time.perf_counter() - began
            with server.log.open("rb") as log:
                log.seek(logged)
                lines = log.read().splitlines()
        finally:
            server.log_messages(False)
    messages = sum(b"LOG:  statement: " in line or b"LOG:  execute " in line for line in lines)
    values = {"queries a second": messages / took}
    if cpu is not None and after is not None:
        values["CPU, % of one"] = (after - cpu) / took * 100
    return values


FIGURES = (
    Figure(
        name="drain-1x1",
        title="drain, 1 process × 1 thread / pgbench, five statements, 1 client",
        unit="jobs/s",
        measure=partial(drain_beside_pgbench, 1, 1, 1),
        goals=(Goal(at_least=1.0),),
    ),
    Figure(
        name="drain-1x4",
        title="drain, 1 process × 4 threads / pgbench, five statements, 4 clients",
        unit="jobs/s",
        measure=partial(drain_beside_pgbench, 1, 4, 4),
        goals=(Goal(at_least=0.7),),
    ),
    Figure(
        name="drain-2x2",
        title="drain, 2 processes × 2 threads / pgbench, five statements, 4 clients",
        unit="jobs/s",
        measure=partial(drain_beside_pgbench, 2, 2, 4),
        goals=(Goal(at_least=0.8),),
    ),
    Figure(
        name="drain-batches",
        title="drain, --batch-size 100 / pgbench, one statement for 100 jobs; the best of each",
        unit="jobs/s",
        measure=drain_in_batches,
        goals=(
            Goal(at_least=0.5),
            Goal(value="worker, best", at_least=30_000, given=("pgbench, best", 65_000)),
        ),
    ),
    Figure(
        name="drain-atomic",
        title="drain, atomic handlers that insert a row through the ORM / bare psycopg, the same six statements",
        unit="jobs/s",
        measure=drain_atomic,
        goals=(Goal(at_least=0.7),),
    ),
    Figure(
        name="drain-many-waiting",
        title="drain with 1,000,000 jobs waiting / with 10,000",
        unit="jobs/s",
        measure=drain_with_many_waiting,
        goals=(Goal(at_least=0.9),),
    ),
    Figure(
        name="drain-many-scheduled",
        title="drain with 1,000,000 jobs scheduled for tomorrow in the same queue / with none",
        unit="jobs/s",
        measure=drain_with_many_scheduled,
        goals=(Goal(at_least=0.95),),
    ),
    Figure(
        name="drain-priorities-scheduled",
        title="drain with 1,000,000 jobs of a higher priority scheduled for tomorrow / with none",
        unit="jobs/s",
        measure=drain_beside_scheduled_priorities,
        goals=(Goal(at_least=0.95),),
    ),
    Figure(
        name="tasks",
        title="Django's tasks, 1 process / django-tasks-db, as many processes as ours has threads",
        unit="tasks/s",
        measure=drain_tasks,
        goals=tuple(
            Goal(value=f"{RATIO}, {results}, {workers}", at_least=goal)
            for results, goal in (("results on", 10), ("results off", 20))
            for workers in ("1 / 1", "4 / 4")
        ),
    ),
    Figure(
        name="drain-old-transaction",
        title="drain of 100,000 while an old transaction stays open, last tenth / first tenth",
        unit="jobs/s",
        measure=drain_beside_old_transaction,
        goals=(Goal(at_least=0.8),),
    ),
    Figure(
        name="drain-archive-index",
        title="drain with the archive's index by finished_at / without",
        unit="jobs/s",
        measure=drain_with_archive_index,
        goals=(Goal(at_least=0.95),),
    ),
    Figure(
        name="drain-pruning",
        title="drain while a million archived jobs are pruned / alone",
        unit="jobs/s",
        measure=drain_beside_pruning,
        goals=tuple(
            Goal(value=f"{RATIO}, {name}", at_least=0.8) for name in ("beside_retention", "beside_prune_command")
        ),
    ),
    Figure(
        name="enqueue",
        title="enqueue, each in its own transaction / bare psycopg INSERT, payload serialised in both",
        unit="jobs/s",
        measure=enqueue_one_at_a_time,
        goals=(Goal(at_least=0.85),),
    ),
    Figure(
        name="enqueue-threads",
        title="enqueue on 8 threads, nobody asleep / the same without any notify code",
        unit="jobs/s",
        measure=enqueue_on_threads,
        goals=(Goal(at_least=0.95),),
    ),
    Figure(
        name="enqueue-many",
        title="enqueue_many(100,000) / bare COPY of ready-made rows",
        unit="jobs/s",
        measure=enqueue_in_bulk,
        goals=(Goal(at_least=0.4),),
    ),
    Figure(
        name="latency",
        title="enqueue to handler, idle worker",
        unit="ms",
        measure=latency,
        goals=(Goal(value="median", at_most=3), Goal(value="95th percentile", at_most=8)),
    ),
    Figure(
        name="lateness",
        title="a job due in 2 seconds: how late it runs",
        unit="ms",
        measure=lateness,
        goals=(Goal(value="median", at_most=5),),
    ),
    Figure(
        name="idle",
        title="idle process of 50 threads",
        unit="",
        measure=idleness,
        goals=(Goal(value="queries a second", at_most=1), Goal(value="CPU, % of one", at_most=0.2)),
    ),
)
