"""A task that fails when it runs first, and would succeed when it runs again."""

from __future__ import annotations

from tests.comparison.claims import claim
from tests.comparison.shop import Shop, finished
from tests.conftest import eventually

RETRIES = "retries"


@claim(RETRIES, "django-proletarian", "`retry_strategy`")
def test_ours_runs_again(shop: Shop) -> None:
    shop.run("tasks.ours_that_fails.enqueue()")
    shop.work("ours")
    assert shop.runs("ours_that_fails") == 2
    assert shop.sql("SELECT status, attempts FROM proletarian.archived_job") == [(":success", 2)]


@claim(RETRIES, "django-tasks-db", "no")
def test_theirs_has_failed(shop: Shop) -> None:
    shop.run("tasks.tasks_db_that_fails.enqueue()")
    shop.work("django-tasks-db")
    assert shop.runs("tasks_db_that_fails") == 1
    assert shop.sql("SELECT status FROM django_tasks_database_dbtaskresult") == [("FAILED",)]
    shop.work("django-tasks-db")
    assert shop.runs("tasks_db_that_fails") == 1


@claim(RETRIES, "procrastinate", "`retry`")
def test_procrastinates_runs_again(shop: Shop) -> None:
    shop.run("tasks.procrastinate_that_fails.defer()")
    shop.work("procrastinate")
    assert shop.runs("procrastinate_that_fails") == 2
    assert shop.sql("SELECT status::text FROM procrastinate_jobs") == [("succeeded",)]


@claim(RETRIES, "Celery", "`autoretry_for`, `self.retry`")
def test_celerys_runs_again(shop: Shop) -> None:
    shop.run("tasks.celery_that_fails.delay()\ntasks.celery_that_retries.delay()")
    shop.start("Celery")
    results = eventually(lambda: len(found := finished(shop)) == 2 and found)
    assert [result["status"] for result in results.values()] == ["SUCCESS", "SUCCESS"]
    assert (shop.runs("celery_that_fails"), shop.runs("celery_that_retries")) == (2, 2)
