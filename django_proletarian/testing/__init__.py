"""For the tests of projects that enqueue jobs: run them, look at them, and decide what time it is.

Everything works on the test's own connection, so within a TestCase's transaction too. The pytest plugin has fixtures
that do the same.
"""

from django_proletarian.testing.clock import FrozenClock, frozen_time, obeying_frozen_time
from django_proletarian.testing.live import LiveWorker, empty_tables, empty_tables_around, live_worker
from django_proletarian.testing.looking import assert_enqueued, assert_not_enqueued, capture_jobs, enqueued_jobs
from django_proletarian.testing.mixin import ProletarianTestMixin
from django_proletarian.testing.running import JobRun, perform_job, run_jobs

__all__ = [
    "FrozenClock",
    "JobRun",
    "LiveWorker",
    "ProletarianTestMixin",
    "assert_enqueued",
    "assert_not_enqueued",
    "capture_jobs",
    "empty_tables",
    "empty_tables_around",
    "enqueued_jobs",
    "frozen_time",
    "live_worker",
    "obeying_frozen_time",
    "perform_job",
    "run_jobs",
]
