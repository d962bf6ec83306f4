"""What is told at the end: what happened, how the jobs fared, and what is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.chaos.enqueuer import Enqueuer
from tests.chaos.evidence import Evidence
from tests.chaos.plan import Kind, Plan
from tests.chaos.turmoil import Turmoil
from tests.chaos.verdict import CRASHED, Fault

EXAMPLES = 5  # of each kind of fault that are shown with their story


def summary(plan: Plan, turmoil: Turmoil, enqueuer: Enqueuer, evidence: Evidence) -> str:
    """How many events of each kind there were, and what they did to the jobs."""
    lines = ["What happened:"]
    for kind in Kind:
        missed = f", and {turmoil.missed[kind]} times to nothing" if turmoil.missed[kind] else ""
        lines.append(f"  {turmoil.done[kind]:5} × {kind}{missed}")
    archived, diary = evidence.archived.values(), evidence.diary
    words = Counter(line.word for line in diary)
    counted = Counter(line.error for line in set(diary) if line.word == "counted")
    statuses = Counter(row.status for row in archived)
    poison = {job_id for job_id, job in plan.jobs().items() if job.job_type == "chaos/poison"}
    suicides = sum(line.word == "began" and line.job_id in poison for line in diary)
    unfinished = words["began"] - words["returned"] - words["raised"]
    leased = {job_id for job_id, job in plan.jobs().items() if job.job_type == "chaos/leased"}
    lost = sum(line.word == "raised" and line.error == "LeaseLost" for line in diary)
    repeated = sum(runs > 1 for runs in evidence.effects.values())
    return "\n".join(
        [
            *lines,
            f"  {turmoil.backends_terminated} backends were terminated",
            f"  supervisors were started again {turmoil.started_again} times",
            f"  the enqueuer lost its connection {enqueuer.lost_connections} times; "
            f"{enqueuer.in_doubt} transactions in doubt had been committed",
            "How the jobs fared:",
            f"  {len(plan.jobs())} enqueued, {len(archived)} archived, {len(evidence.queued)} in the queue still",
            f"  statuses: {dict(statuses)}",
            f"  handlers began {words['began']} times, returned {words['returned']}, raised {words['raised']}, "
            f"and were cut off {unfinished} times",
            f"  attempts in the archive: {dict(sorted(Counter(row.attempts for row in archived).items()))}",
            f"  failed attempts: {dict(counted)}, {counted[CRASHED]} of them crashes",
            f"  {len(poison)} poison jobs were run {suicides} times",
            f"  of {len(leased)} leased jobs, {lost} attempts were told that their lease was lost",
            f"  {repeated} plain jobs ran to their end more than once",
        ]
    )


def indictment(plan: Plan, faults: Sequence[Fault], evidence: Evidence) -> str:
    """The faults, the jobs among them by kind, and the whole story of some of each."""
    of_jobs: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        # Alike but for their numbers.
        of_jobs["".join("N" if letter.isdigit() else letter for letter in fault.text)].append(fault)
    lines = [f"{len(faults)} faults:"]
    for alike in of_jobs.values():
        lines.append(f"  {len(alike)} × {alike[0].text}")
        for fault in alike[:EXAMPLES]:
            if fault.job_id is not None:
                lines += [f"      {fault.text}", *(f"        {line}" for line in _story(plan, fault, evidence))]
    return "\n".join(lines)


def _story(plan: Plan, fault: Fault, evidence: Evidence) -> Iterator[str]:
    job_id = fault.job_id
    assert job_id is not None
    chunk = next((chunk for chunk in plan.chunks if any(job.job_id == job_id for job in chunk.jobs)), None)
    if chunk is None:
        yield f"{job_id}, of no transaction of ours"
    else:
        job = next(job for job in chunk.jobs if job.job_id == job_id)
        yield f"{job_id}, {job.job_type}, {job.work}, of transaction {chunk.number}, rolled back: {chunk.rolled_back}"
    yield f"queue: attempts {evidence.queued.get(job_id)}; archive: {evidence.archived.get(job_id)}"
    yield f"ledger: {evidence.ledger[job_id]} rows; effect: runs {evidence.effects.get(job_id)}"
    for line in evidence.diary:
        if line.job_id == job_id:
            yield f"{line.word} attempt {line.attempt} in process {line.process} {line.error}"
