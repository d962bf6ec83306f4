"""What a handler can ask of the worker that runs it, through its `Job`: progress, checkpoints, a fence.

Made by the worker for each job of which somebody asks. Statements go through Django's own connection of the thread that
asks, so that they belong to the transaction that is open there.
"""

from __future__ import annotations

import threading
from typing import Any

from django.db import connections, transaction

from django_proletarian.attempts import MOST_RESULT, load_checkpoint, save_checkpoint
from django_proletarian.errors import LeaseLost, PayloadEncodeError
from django_proletarian.leases import Lease
from django_proletarian.progress import Progress
from django_proletarian.serializers import Serializer
from django_proletarian.slots import Slot
from django_proletarian.store import ClaimedJob
from django_proletarian.tables import Tables

NOTHING = object()


class RunningAttempt:
    """One attempt, as its own handler sees it. Any thread of the handler's may ask."""

    def __init__(
        self,
        claimed: ClaimedJob,
        stop: threading.Event,
        *,
        worker_id: str,
        database: str,
        tables: Tables,
        serializer: Serializer,
        slot: Slot,
        lease: Lease | None,
        atomic: bool,
    ) -> None:
        self.stop = stop
        self.has_checkpoint = False  # as far as anybody has asked or saved
        self._claimed = claimed
        self._worker_id = worker_id
        self._database = database
        self._tables = tables
        self._serializer = serializer
        self._slot = slot
        self._lease = lease
        self._atomic = atomic
        self._last_checkpoint: Any = NOTHING  # not asked for yet

    def progress(self, progress: Progress) -> None:
        """Show it to those who look on, some time within a second or two."""
        self._slot.progress(self._claimed.job_id, progress)

    def checkpoint(self, data: object) -> None:
        """Save `data` for the next attempt, in the transaction that is open, or at once. See `Job.checkpoint`."""
        if self._atomic:
            raise RuntimeError(
                "An atomic handler has no checkpoints: they would be undone with all that it wrote. Leave atomic=True "
                "out, and save what is done and the checkpoint in one transaction."
            )
        text = self._serializer.encode(data)
        if len(text) > MOST_RESULT or "\x00" in text:
            raise PayloadEncodeError(
                f"A checkpoint of {len(text):,} characters, as encoded, is too long, or has a NUL; {MOST_RESULT:,} are "
                "allowed. Save where to go on, and what was done in tables of yours."
            )
        with transaction.atomic(using=self._database, savepoint=False):
            self.fence()
            with connections[self._database].cursor() as cursor:
                save_checkpoint(
                    cursor,
                    self._tables,
                    self._claimed.job_id,
                    attempt=self._claimed.attempts + 1,
                    worker_id=self._worker_id,
                    data=text,
                )
        self._last_checkpoint, self.has_checkpoint = data, True

    def last_checkpoint(self) -> Any:
        """What was saved last, by this attempt or one before it; None if nothing was."""
        if self._last_checkpoint is NOTHING:
            with connections[self._database].cursor() as cursor:
                text = load_checkpoint(cursor, self._tables, self._claimed.job_id)
            self.has_checkpoint = text is not None
            self._last_checkpoint = None if text is None else self._serializer.decode(text)
        return self._last_checkpoint

    def fence(self) -> None:
        """See `Job.fence`."""
        connection = connections[self._database]
        if not connection.in_atomic_block:
            raise RuntimeError("job.fence() is for within `with transaction.atomic():`, whose end it lasts to.")
        if self._lease is None:
            return  # the worker holds the row's lock
        with connection.cursor() as cursor:
            if not self._lease.hold(cursor):
                raise LeaseLost("Another worker may have this job: its lease ran out.")
