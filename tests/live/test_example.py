"""The example shop with its receipts as Django's own tasks; `make demo` shows them as jobs, in CI too."""

from __future__ import annotations

from tests.live.processes import run_python, sql
from tests.scratch import scratch_database

RECEIPTS = """
SELECT archived_job.job_type, archived_job.status, job_attempt.outcome, count(job_attempt.result)
  FROM proletarian.archived_job JOIN proletarian.job_attempt USING (job_id)
 WHERE archived_job.job_type LIKE '%send_receipt'
 GROUP BY 1, 2, 3
"""


def test_the_demo_is_as_it_must_be_with_receipts_that_are_tasks() -> None:
    with scratch_database() as url:
        # What the demo checks, of receipts too, holds for jobs and tasks alike.
        run_python("example_project/demo.py", DATABASE_URL=url, SHOP_TASKS="yes")
        # Nine orders, and a tenth that is rolled back; each task has returned its receipt's id.
        assert sql(url, RECEIPTS) == [(":shop.tasks/send_receipt", ":success", "success", 9)]
