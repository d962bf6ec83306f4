"""What is enqueued in a transaction that is rolled back, and in one that is committed."""

from __future__ import annotations

import pytest

from tests.comparison.claims import claim
from tests.comparison.shop import Shop

COMMITS = "commits with your transaction"

# The second of the two is rolled back.
TWICE = """
for rolled_back in (False, True):
    with transaction.atomic():
        {}
        transaction.set_rollback(rolled_back)
"""


@claim(COMMITS, "django-proletarian", "yes")
def test_ours_is_there_if_the_transaction_was_committed(shop: Shop) -> None:
    shop.run(TWICE.format("tasks.ours_that_fails.enqueue()"))
    assert shop.sql("SELECT count(*) FROM proletarian.job") == [(1,)]


@claim(COMMITS, "django-tasks-db", "yes")
def test_theirs_is_there_if_the_transaction_was_committed(shop: Shop) -> None:
    shop.run(TWICE.format("tasks.tasks_db_that_fails.enqueue()"))
    assert shop.sql("SELECT count(*) FROM django_tasks_database_dbtaskresult") == [(1,)]


@claim(COMMITS, "procrastinate", "yes, with its Django connector")
def test_procrastinates_is_there_if_the_transaction_was_committed(shop: Shop) -> None:
    said = shop.run(TWICE.format("tasks.procrastinate_that_fails.defer()") + "print(tasks.procrastinate_app.connector)")
    assert "DjangoConnector" in said
    assert shop.sql("SELECT count(*) FROM procrastinate_jobs") == [(1,)]


def test_with_another_connector_procrastinates_is_there_all_the_same(shop: Shop) -> None:
    shop.run(
        "from procrastinate import SyncPsycopgConnector\n"
        f"elsewhere = SyncPsycopgConnector(conninfo={shop.url!r})\n"
        "with tasks.procrastinate_app.replace_connector(elsewhere) as app, app.open(), transaction.atomic():\n"
        "    tasks.procrastinate_that_fails.defer()\n"
        "    transaction.set_rollback(True)\n"
    )
    assert shop.sql("SELECT count(*) FROM procrastinate_jobs") == [(1,)]


@claim(COMMITS, "Celery", "no; `delay_on_commit` sends after the commit")
def test_celery_has_sent_what_was_rolled_back(shop: Shop) -> None:
    shop.run(TWICE.format("tasks.celery_that_fails.delay()"))
    assert len(shop.messages) == 2


def test_celerys_delay_on_commit_has_not(shop: Shop) -> None:
    shop.run(TWICE.format("tasks.celery_that_fails.delay_on_commit()"))
    assert len(shop.messages) == 1


@pytest.mark.parametrize("enqueue", ["tasks.ours_that_fails.enqueue()", "tasks.tasks_db_that_fails.enqueue()"])
def test_one_that_sends_after_the_commit_loses_what_a_crash_comes_before(shop: Shop, enqueue: str) -> None:
    """Which a row in the transaction does not."""
    crash = "transaction.on_commit(lambda: __import__('os')._exit(0))"
    shop.run(f"with transaction.atomic():\n    {crash}\n    tasks.celery_that_fails.delay_on_commit()\n    {enqueue}")
    assert shop.messages == []
    rows = "SELECT job_id::text FROM proletarian.job UNION SELECT id::text FROM django_tasks_database_dbtaskresult"
    assert len(shop.sql(rows)) == 1
