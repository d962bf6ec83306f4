"""The testing tools as methods, for those who write `self.assert…`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest import TestCase

from django.db import router

from django_proletarian.handlers import Handler
from django_proletarian.models import Job, StoredJob
from django_proletarian.testing.clock import obeying_frozen_time
from django_proletarian.testing.live import LiveWorker, empty_tables_around, live_worker
from django_proletarian.testing.looking import assert_enqueued, assert_not_enqueued, capture_jobs, enqueued_jobs
from django_proletarian.testing.running import JobRun, perform_job, run_jobs


class ProletarianTestMixin(TestCase):
    """Beside Django's TestCase or TransactionTestCase, before it: the tools of this package as methods.

    Jobs go by the time that time-machine or freezegun pretend. In a TransactionTestCase the tables are empty before and
    after each test.
    """

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(obeying_frozen_time())
        if router.db_for_write(Job) in getattr(self, "databases", ()):  # else Django lets nobody near it
            self.enterContext(empty_tables_around())

    def run_jobs(self, *args: Any, **options: Any) -> list[JobRun]:
        """See `run_jobs`."""
        return run_jobs(*args, **options)

    def perform_job(self, handler: Handler | str, payload: object = None, *args: Any, **options: Any) -> object:
        """See `perform_job`."""
        return perform_job(handler, payload, *args, **options)

    def enqueued_jobs(self, *args: Any, **options: Any) -> list[Job]:
        """See `enqueued_jobs`."""
        return enqueued_jobs(*args, **options)

    def assertEnqueued(self, job_type: str | Handler | None = None, **wanted: Any) -> Job:  # noqa: N802 # as unittest's
        """See `assert_enqueued`."""
        return assert_enqueued(job_type, **wanted)

    def assertNotEnqueued(self, job_type: str | Handler | None = None, **wanted: Any) -> None:  # noqa: N802
        """See `assert_not_enqueued`."""
        assert_not_enqueued(job_type, **wanted)

    def captureJobs(self, **options: Any) -> AbstractContextManager[list[StoredJob]]:  # noqa: N802
        """See `capture_jobs`."""
        return capture_jobs(**options)

    def live_worker(self, *args: Any, **options: Any) -> AbstractContextManager[LiveWorker]:
        """See `live_worker`."""
        return live_worker(*args, **options)
