"""What a job's payload asks of its handler. Shared by the plan, which must not load the models."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from django_proletarian import Job

RETRIES = 2
ALWAYS = 1_000_000  # attempts that fail


class PlannedFailure(Exception):
    """What a job that should fail raises."""


@dataclass(frozen=True, slots=True)
class Work:
    """How long a job takes, and at how many attempts, from the first, it fails."""

    seconds: float
    failures: int

    def payload(self) -> dict[str, object]:
        """As it is enqueued."""
        return asdict(self)

    @classmethod
    def of(cls, job: Job) -> Work:
        assert isinstance(job.payload, dict)
        return cls(**job.payload)

    def do(self, attempt: int) -> None:
        """Take the time; raise PlannedFailure if this attempt is to fail."""
        time.sleep(self.seconds)
        if attempt <= self.failures:
            raise PlannedFailure(f"attempt {attempt} of {self.failures} that fail")
