"""Enqueues the planned jobs while the world breaks down around it, and knows at the end which ones were enqueued."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from django.db import InterfaceError, OperationalError, connection, transaction

from django_proletarian import NewJob, enqueue, enqueue_many
from tests.chaos import plan
from tests.chaos.project.models import Chunk


class WantedBack(Exception):
    """Raised inside a transaction, to undo it."""


class Enqueuer(threading.Thread):
    """Does so in a thread of its own, with Django's connection of that thread. `join` it, then look at `error`."""

    def __init__(self, chunks: tuple[plan.Chunk, ...]) -> None:
        super().__init__(name="enqueuer", daemon=True)
        self.error: BaseException | None = None
        self.lost_connections = 0
        self.in_doubt = 0  # of those, how often the transaction turned out to be committed
        self._chunks = chunks

    def run(self) -> None:
        began = time.monotonic()
        try:
            for chunk in self._chunks:
                time.sleep(max(0, began + chunk.at - time.monotonic()))
                self._until_certain(chunk)
        except BaseException as error:
            self.error = error
        finally:
            connection.close()

    def _until_certain(self, chunk: plan.Chunk) -> None:
        """Enqueue the chunk, however often that takes: when the connection dies at COMMIT, ask what became of it."""
        tried = False
        while True:
            try:
                if tried and self._is_committed(chunk):
                    self.in_doubt += 1
                    return
                tried = True
                enqueue_chunk(chunk)
            except (OperationalError, InterfaceError):
                self.lost_connections += 1
                connection.close()
                time.sleep(0.1)
            else:
                return

    def _is_committed(self, chunk: plan.Chunk) -> bool:
        """Whether the transaction of a lost connection was committed. Asked when the server has done with that one."""
        while True:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()",
                    [connection.settings_dict["OPTIONS"]["application_name"]],
                )
                if cursor.fetchone() is None:
                    return Chunk.objects.filter(number=chunk.number).exists()
            time.sleep(0.05)


def enqueue_chunk(chunk: plan.Chunk) -> None:
    """Enqueue its jobs in one transaction with its row; undo that if it is planned so."""
    try:
        with transaction.atomic():
            Chunk.objects.create(number=chunk.number)
            if len(chunk.jobs) == 1:
                [job] = chunk.jobs
                enqueue(job.job_type, job.work.payload(), job_id=job.job_id, process_in=timedelta(seconds=job.due_in))
            else:
                enqueue_many(
                    [
                        NewJob(
                            job.job_type,
                            job.work.payload(),
                            job_id=job.job_id,
                            process_in=timedelta(seconds=job.due_in) if job.due_in else None,
                        )
                        for job in chunk.jobs
                    ]
                )
            if chunk.rolled_back:
                raise WantedBack
    except WantedBack:
        pass
