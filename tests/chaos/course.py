"""One run from beginning to end: jobs and events, the rest of the jobs, a stop, the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.chaos.enqueuer import Enqueuer
from tests.chaos.evidence import Evidence, rows_of, untold_jobs, unwanted_lines
from tests.chaos.plan import Plan
from tests.chaos.report import indictment, summary
from tests.chaos.turmoil import Turmoil
from tests.chaos.verdict import faults
from tests.chaos.world import PATIENCE, THREADS, World
from tests.conftest import eventually

Say = Callable[[str], object]


def run(plan: Plan, world: World, say: Say) -> bool:
    """Carry the plan out; return whether all is well."""
    world.populate()
    for supervisor in world.supervisors.values():
        eventually(supervisor.children, PATIENCE)
    say("The workers have started.")
    enqueuer, turmoil = Enqueuer(plan.chunks), Turmoil(world, say)
    enqueuer.start()
    turmoil.run(plan.events)
    say("The plan is over; the workers finish what is left.")
    finish(world, enqueuer, turmoil, say)
    say("Stopping the workers.")
    for supervisor in world.supervisors.values():
        supervisor.stop()
    evidence = gather(world, enqueuer, turmoil)
    found = faults(plan, evidence)
    say(summary(plan, turmoil, enqueuer, evidence))
    if found:
        say(indictment(plan, found, evidence))
    return not found


def finish(world: World, enqueuer: Enqueuer, turmoil: Turmoil, say: Say) -> None:
    """Wait until the last job is enqueued and the queue is empty, or nothing has changed for long."""
    before, deadline = None, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        turmoil.revive()
        [progress] = world.sql("SELECT count(*), sum(attempts) FROM proletarian.job")
        if progress[0] == 0 and not enqueuer.is_alive():
            return
        if progress != before:
            before, deadline = progress, time.monotonic() + PATIENCE
        time.sleep(0.1)
    say(f"Nothing has changed for {PATIENCE} seconds, and there are jobs in the queue. The server's clients:")
    for client in world.connections():
        say(client)


def gather(world: World, enqueuer: Enqueuer, turmoil: Turmoil) -> Evidence:
    """All evidence, once the workers are stopped and the pooler, which keeps connections, is gone."""
    mishaps = [mishap for supervisor in world.supervisors.values() for mishap in supervisor.mishaps]
    mishaps += unwanted_lines(world)
    if enqueuer.error is not None:
        mishaps.append(f"the enqueuer gave up: {enqueuer.error!r}")
    if world.pooler is not None:
        world.pooler.kill()
    connections = gone(world.connections)
    processes = gone(world.left_processes)
    return Evidence(
        **rows_of(world),
        connections=connections,
        processes=processes,
        untold=untold_jobs(world),
        mishaps=mishaps,
        killed=frozenset(turmoil.children_killed),
        threads=THREADS,
    )


def gone(left: Callable[[], list[str]]) -> list[str]:
    """What is left after it has had the time to go."""
    deadline = time.monotonic() + 30
    while (found := left()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found
