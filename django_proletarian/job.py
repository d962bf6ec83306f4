"""A job as a handler sees it: a frozen value, made by the store from one row."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django_proletarian import interrupts


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, as handed to `advanced` handlers, retry strategies and failed-job callbacks."""

    job_id: UUID
    queue: str
    job_type: str
    payload: object = field(repr=False)  # decoded; None if it could not be. Not in the repr: it is other people's data
    attempts: int  # counts this attempt too, so 1 on the first run
    enqueued_at: datetime  # aware, UTC, as are all dates here; never changes
    process_at: datetime  # when this attempt was due

    @property
    def stop_requested(self) -> bool:
        """Whether the worker that runs this job was asked to stop."""
        return interrupts.stop_requested()

    def wait_or_stop(self, seconds: float) -> bool:
        """Wait for `seconds` or until the worker is asked to stop; return whether it was."""
        return interrupts.wait_or_stop(seconds)
