"""What is there when all is over: rows, the diary, connections, processes. Read here, judged in `verdict`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from tests.chaos.project import diary
from tests.chaos.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the archive; `status` as it is stored."""

    status: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All of it."""

    queued: dict[UUID, int]  # attempts of the jobs that are in the queue still
    archived: dict[UUID, Row]
    ledger: Counter[UUID]  # rows of each atomic job
    effects: dict[UUID, int]  # runs of each plain job
    chunks: frozenset[int]  # numbers of those that were committed
    diary: Sequence[diary.Line]
    connections: Sequence[str]  # to the server, that are open still
    processes: Sequence[str]  # that run still
    untold: frozenset[UUID]  # jobs that were settled without asking their strategies or calling their callbacks
    mishaps: Sequence[str]  # that happened to supervisors, or to the driver, and should not
    killed: frozenset[int]  # process ids of the children that the driver killed
    threads: int  # the most jobs that one child runs at once


# What no outage and no kill excuses, as the workers' logs call it.
UNWANTED = (
    "proletarian.worker/job-worker-error",
    "proletarian.worker/on-commit-exception",
    "proletarian.worker/archived-job-replaced",
    "proletarian.worker/archived-job-not-replaced",
    "proletarian.retry/retry-strategy-fn-error",
)


# When a process dies while it settles a crash, the next one asks no strategy and calls no callback.
SETTLED_UNTOLD = re.compile(r"proletarian\.supervisor/crashed-while-settling .*\bjob_id=(\S+)")


def untold_jobs(world: World) -> frozenset[UUID]:
    """Ids of the jobs about whose crashes nothing could come into the diary."""
    logs = (log.read_text(errors="replace") for log in world.directory.glob("*-*.log"))
    return frozenset(UUID(job_id) for log in logs for job_id in SETTLED_UNTOLD.findall(log))


def unwanted_lines(world: World) -> list[str]:
    """Lines of the workers' logs that must not be there."""
    return [
        f"{log.name}: {line}"
        for log in sorted(world.directory.glob("*-*.log"))
        for line in log.read_text(errors="replace").splitlines()
        if any(unwanted in line for unwanted in UNWANTED)
    ]


def rows_of(world: World) -> dict[str, object]:
    """What the tables and the diary have."""
    return {
        "queued": dict(world.sql("SELECT job_id, attempts FROM proletarian.job")),
        "archived": {
            job_id: Row(status=status, attempts=attempts)
            for job_id, status, attempts in world.sql("SELECT job_id, status, attempts FROM proletarian.archived_job")
        },
        "ledger": Counter(job_id for (job_id,) in world.sql("SELECT job_id FROM project_ledger")),
        "effects": dict(world.sql("SELECT job_id, runs FROM project_effect")),
        "chunks": frozenset(number for (number,) in world.sql("SELECT number FROM project_chunk")),
        "diary": diary.read(world.directory / "diary"),
    }
