"""Run one job that is in the queue, here and now, in the thread that asks.

Called by `enqueue` where the IMMEDIATE setting is on, and by testing.run_jobs().
"""

from __future__ import annotations

from uuid import UUID

from django_proletarian import conf
from django_proletarian.attempt import OnDecided
from django_proletarian.borrowed_connection import claim_connection
from django_proletarian.connection import ClaimConnection
from django_proletarian.event_loop import event_loop_closed_after
from django_proletarian.interrupting import Stop
from django_proletarian.log import EventLog
from django_proletarian.polling import JobBudget
from django_proletarian.store import ClaimBounds
from django_proletarian.worker import process_jobs
from django_proletarian.worker_options import WorkerOptions


def run_when_committed(database: str, queue: str, job_id: UUID) -> None:
    """Run the job as the IMMEDIATE setting wants it: as a worker would, again as long as it is due, errors logged."""
    options = conf.worker_options(database=database, queues=[queue], worker_id="immediate")
    with claim_connection(database, options.worker_id) as claim:
        while run_job(options, claim, queue, job_id):
            pass  # it may have failed, and be due again at once


def run_job(
    options: WorkerOptions, claim: ClaimConnection, queue: str, job_id: UUID, *, on_decided: OnDecided | None = None
) -> bool | None:
    """Claim one job if it is due, run it and settle it. Returns, and raises, what process_next_job does."""
    with event_loop_closed_after():
        return process_jobs(
            options,
            claim,
            [queue],
            stop=Stop(),
            log=EventLog(queue_worker_id=options.worker_id),
            budget=JobBudget(1),
            bounds=ClaimBounds(),
            on_decided=on_decided,
            only=job_id,
        )
