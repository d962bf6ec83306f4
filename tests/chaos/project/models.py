"""What the jobs and the enqueuer write."""

from django.db import models


class Ledger(models.Model):
    """What atomic and leased jobs do. The id is not unique here: a job that was done twice must show as two rows."""

    job_id = models.UUIDField(db_index=True)

    def __str__(self) -> str:
        return f"ledger row of {self.job_id}"


class Effect(models.Model):
    """What a plain job does, its id the idempotency key, and how often it has done it."""

    job_id = models.UUIDField(primary_key=True)
    runs = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"effect of {self.job_id}"


class Chunk(models.Model):
    """The business change that some jobs are enqueued with, in one transaction."""

    number = models.PositiveIntegerField(primary_key=True)

    def __str__(self) -> str:
        return f"chunk {self.number}"
