"""For the tests of projects that enqueue jobs: run them, look at them, and decide what time it is.

Everything works on the test's own connection, so within a TestCase's transaction too. The pytest plugin has fixtures
that do the same.
"""

from django_proletarian.testing.looking import assert_enqueued, assert_not_enqueued, capture_jobs, enqueued_jobs
from django_proletarian.testing.running import JobRun, perform_job, run_jobs

__all__ = [
    "JobRun",
    "assert_enqueued",
    "assert_not_enqueued",
    "capture_jobs",
    "enqueued_jobs",
    "perform_job",
    "run_jobs",
]
