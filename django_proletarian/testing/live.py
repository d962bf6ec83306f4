"""A real worker on threads, for tests whose jobs need real commits; and the empty tables that those need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

from django.apps import apps
from django.db import connections, router

from django_proletarian.api import create_queue_worker
from django_proletarian.models import ArchivedJob, Job
from django_proletarian.queue_worker import QueueWorker

T = TypeVar("T")
PATIENCE = 60.0  # seconds; much more than any of it takes, since the machine may be busy


class LiveWorker:
    """A worker that runs, and what a test may wait for. Made by `live_worker`."""

    def __init__(self, worker: QueueWorker) -> None:
        self.worker = worker

    def wait_for(self, job_id: UUID, timeout: float = PATIENCE) -> ArchivedJob:
        """Wait until the job is archived, and return it; TimeoutError after `timeout` seconds."""
        wanted = ArchivedJob.objects.using(self.worker.options.database).filter(job_id=job_id)
        return self._eventually(wanted.first, timeout, f"job {job_id} is not archived")

    def wait_until_empty(self, timeout: float = PATIENCE) -> None:
        """Wait until no job is left in the worker's queues, scheduled ones included; TimeoutError after `timeout`."""
        options = self.worker.options
        waiting = Job.objects.using(options.database).filter(queue__in=options.queues)
        self._eventually(lambda: not waiting.exists(), timeout, "there are jobs in the queue")

    def _eventually(self, condition: Callable[[], T | None], timeout: float, trouble: str) -> T:
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            if self.worker.error is not None:
                raise self.worker.error
            if time.monotonic() > deadline:
                raise TimeoutError(f"After {timeout:g} seconds {trouble}. {self._what_is_there()}")
            time.sleep(0.01)
        return value

    def _what_is_there(self) -> str:
        options = self.worker.options
        jobs = Job.objects.using(options.database).order_by("process_at")
        there = ", ".join(f"{job.job_type} on {job.queue} after {job.attempts} attempts" for job in jobs[:10])
        return f"The worker is on {', '.join(options.queues)}; in the queue: {there or 'nothing'}."


@contextmanager
def live_worker(queues: str | list[str] | None = None, **options: Any) -> Iterator[LiveWorker]:
    """A worker that runs on threads during the block; the options are those of `create_queue_worker`.

    It sees what is committed, and nothing else: not for use within a transaction. Raises RuntimeError there, and at the
    end if a job does not stop in time.
    """
    worker = create_queue_worker(queues, **options)
    if connections[worker.options.database].in_atomic_block:
        raise RuntimeError(
            "A live worker does not see what this test writes, since nothing is committed. Use TransactionTestCase "
            "or @pytest.mark.django_db(transaction=True), or run_jobs() in place of the worker."
        )
    worker.start()
    try:
        yield LiveWorker(worker)
    finally:
        stopped = worker.stop()
    if not stopped:
        raise RuntimeError(f"A job is still running, {worker.options.shutdown_timeout:g} seconds after the test's end.")


@contextmanager
def empty_tables_around(*, using: str | None = None) -> Iterator[None]:
    """Empty tables at the beginning and at the end, where what a test does is committed; else nothing."""
    if connections[_database(using)].in_atomic_block:
        yield
        return
    empty_tables(using=using)
    try:
        yield
    finally:
        empty_tables(using=using)


def empty_tables(*, using: str | None = None) -> None:
    """Delete all jobs, archived ones included, and all else that is ours.

    For tests with real commits: Django's flush does not see tables in a schema of their own.
    """
    connection = connections[_database(using)]
    with connection.cursor() as cursor:
        for model in apps.get_app_config("django_proletarian").get_models():
            if not model._meta.proxy:
                cursor.execute(f"DELETE FROM {connection.ops.quote_name(model._meta.db_table)}")  # noqa: S608


def _database(using: str | None) -> str:
    return router.db_for_write(Job) if using is None else using
