"""Whether what is there is what must be. Pure: the plan and the evidence in, faults out.

Every rule is exact. A job's attempts are counted by the worker one by one, and before each is counted the strategy is
asked, which writes that into the diary: so for every attempt but the last there must be such a line, and lines that say
that a process crashed must not be more than killed processes had jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from tests.chaos.evidence import Evidence, Row
from tests.chaos.plan import Plan, PlannedJob
from tests.chaos.project.diary import Line
from tests.chaos.project.work import ALWAYS, RETRIES

SUCCESS, FAILURE = ":success", ":failure"
CRASHED = "WorkerCrashed"
MAX_CRASHES = 3  # the setting's default
# What a handler may meet here without a fault of the worker's: its own planned failure, and the loss of its database.
EXPECTED_ERRORS = {"PlannedFailure", "OperationalError", "InterfaceError", "InternalError"}


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that must not be; `job_id` if it is about one job."""

    text: str
    job_id: UUID | None = None


def faults(plan: Plan, evidence: Evidence) -> list[Fault]:
    """All that is wrong."""
    lines: dict[UUID, list[Line]] = defaultdict(list)
    for line in evidence.diary:
        lines[line.job_id].append(line)
    planned = plan.jobs()
    return [
        *_of_all(plan, evidence),
        *_crashes(planned, evidence, lines),
        *_strangers(planned, evidence, lines),
        *(
            Fault(text, job_id)
            for job_id, job in planned.items()
            for text in _of_job(job, evidence, lines.get(job_id, []))
        ),
    ]


def _of_all(plan: Plan, evidence: Evidence) -> Iterator[Fault]:
    """What is wrong with the world."""
    wanted = {chunk.number for chunk in plan.chunks if not chunk.rolled_back}
    if evidence.chunks != wanted:
        yield Fault(f"transactions missing: {wanted - evidence.chunks}, too many: {evidence.chunks - wanted}")
    for connection in evidence.connections:
        yield Fault(f"a connection is left: {connection}")
    for process in evidence.processes:
        yield Fault(f"a process is left: {process}")
    for mishap in evidence.mishaps:
        yield Fault(mishap)


def _crashes(planned: dict[UUID, PlannedJob], evidence: Evidence, lines: dict[UUID, list[Line]]) -> Iterator[Fault]:
    """Attempts are counted as crashes only if a killed process had them, and one process has a job for each thread."""
    poison = {job_id for job_id, job in planned.items() if job.job_type == "chaos/poison"}
    killed = evidence.killed | {
        line.process for line in evidence.diary if line.word == "began" and line.job_id in poison
    }
    crashes = {
        (line.job_id, line.attempt) for line in evidence.diary if line.word == "counted" and line.error == CRASHED
    }
    if len(crashes) > len(killed) * evidence.threads:
        yield Fault(
            f"{len(crashes)} attempts were counted as crashes, and only {len(killed)} processes of {evidence.threads} "
            "threads were killed"
        )
    for job_id, attempt in crashes:
        # None, if the kill came before the handler's first line.
        ran_in = {line.process for line in lines[job_id] if line.word == "began" and line.attempt == attempt}
        if ran_in and not ran_in & killed:
            yield Fault(f"attempt {attempt} was counted as a crash, and ran in no process that was killed", job_id)


def _strangers(planned: dict[UUID, PlannedJob], evidence: Evidence, lines: dict[UUID, list[Line]]) -> Iterator[Fault]:
    """Jobs that were never enqueued, or whose transaction was rolled back."""
    places: dict[str, Iterator[UUID]] = {
        "in the queue": iter(evidence.queued),
        "archived": iter(evidence.archived),
        "in the ledger": iter(evidence.ledger),
        "among the effects": iter(evidence.effects),
        "in the diary": iter(lines),
    }
    for place, found in places.items():
        for job_id in found:
            if job_id not in planned:
                yield Fault(f"a job that was never enqueued is {place}", job_id)


def _of_job(job: PlannedJob, evidence: Evidence, lines: Sequence[Line]) -> Iterator[str]:
    """What is wrong with one job."""
    row = evidence.archived.get(job.job_id)
    if job.job_id in evidence.queued:
        yield "it is in the queue still" if row is None else "it is in the queue and in the archive"
    elif row is None:
        yield "it is lost: neither in the queue nor in the archive"
    if row is None:
        return
    # An attempt whose lease ran out was counted when it began, and nobody is asked about it.
    told_of_all = job.job_type != "chaos/leased" and job.job_id not in evidence.untold
    yield from _attempts(row, lines, told=job.job_id not in evidence.untold, told_of_all=told_of_all)
    yield from _status(job, row, lines, told=job.job_id not in evidence.untold)
    yield from _effects(job, row, evidence, lines)
    expected = EXPECTED_ERRORS | {"LeaseLost"} if job.job_type == "chaos/leased" else EXPECTED_ERRORS
    for line in lines:
        if line.word == "raised" and line.error not in expected:
            yield f"its handler met an unexpected {line.error}"


def _attempts(row: Row, lines: Sequence[Line], *, told: bool, told_of_all: bool) -> Iterator[str]:
    """Each attempt but the last was counted for a reason, and the last is how it ended."""
    counted = {line.attempt for line in lines if line.word == "counted"}
    for attempt in range(1, row.attempts):
        if told_of_all and attempt not in counted:
            yield f"attempt {attempt} of {row.attempts} was counted without a reason"
    if row.status == SUCCESS and not _has(lines, "returned", row.attempts):
        yield f"it is a success at attempt {row.attempts}, where its handler did not return"
    if (
        told
        and row.status == FAILURE
        and not (_has(lines, "counted", row.attempts) and _has(lines, "gave-up", row.attempts))
    ):
        yield f"it is a failure at attempt {row.attempts}, where neither strategy nor callback gave it up"


def _status(job: PlannedJob, row: Row, lines: Sequence[Line], *, told: bool) -> Iterator[str]:
    """The status is what the job's work says, but that a job may be given up after so many crashes."""
    crashed = _has(lines, "gave-up", row.attempts, CRASHED) or not told
    crashed = crashed and row.attempts >= max(RETRIES + 1, MAX_CRASHES)
    hopeless = job.work.failures == ALWAYS
    if row.status not in (SUCCESS, FAILURE):
        yield f"its status is {row.status}"
    elif row.status == SUCCESS and row.attempts <= job.work.failures:
        yield f"it is a success at attempt {row.attempts}, where it had to fail"
    elif row.status == FAILURE and not hopeless and not crashed:
        yield "it is a failure, and neither had to fail nor was given up after crashes"
    elif row.status == FAILURE and row.attempts <= RETRIES:
        yield f"it is a failure after {row.attempts} attempts, and has {RETRIES} retries"
    if job.job_type == "chaos/poison" and row.attempts != max(RETRIES + 1, MAX_CRASHES):
        yield f"it killed its process at every attempt, and has {row.attempts} attempts"


def _effects(job: PlannedJob, row: Row, evidence: Evidence, lines: Sequence[Line]) -> Iterator[str]:
    """What an atomic job does is done once if it succeeds, and never if not; what a plain one does is not missing.

    What a leased job does is done once; never, or once, if it was given up after crashes.
    """
    ledger, runs = evidence.ledger[job.job_id], evidence.effects.get(job.job_id)
    wanted = job.job_type in ("chaos/atomic", "chaos/leased") and row.status == SUCCESS
    may_have_one = job.job_type == "chaos/leased" and job.work.failures != ALWAYS
    if ledger != wanted and not (may_have_one and not wanted and ledger == 1):
        yield f"it has {ledger} rows in the ledger instead of {int(wanted)}"
    if job.job_type == "chaos/plain":
        began = sum(line.word == "began" for line in lines)
        returned = sum(line.word == "returned" for line in lines)
        if row.status == SUCCESS and runs is None:
            yield "its effect is missing"
        if not returned <= (runs or 0) <= began:
            yield f"it has {runs} runs, and its handler began {began} times and returned {returned} times"
    elif runs is not None:
        yield "it is not plain, and has an effect"
    committed = sum(line.word == "committed" for line in lines)
    if committed > (wanted and job.job_type == "chaos/atomic"):
        yield f"its on_commit callback ran {committed} times"


def _has(lines: Sequence[Line], word: str, attempt: int, error: str | None = None) -> bool:
    return any(line.word == word and line.attempt == attempt and error in (None, line.error) for line in lines)
