"""The files of a small project whose tests use the testing tools, for test_plugin, by path."""

SETTINGS = """
INSTALLED_APPS += ["shop"]
SECRET_KEY = "scratch"
"""

FILES = {
    "shop/__init__.py": "",
    "shop/migrations/__init__.py": "",
    "shop/models.py": """
from django.db import models


class Receipt(models.Model):
    text = models.TextField()
""",
    "shop/migrations/0001_initial.py": """
from django.db import migrations, models


def seed(apps, schema_editor):
    apps.get_model("shop", "Receipt").objects.create(text="from a migration")


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            name="Receipt",
            fields=[("id", models.BigAutoField(primary_key=True)), ("text", models.TextField())],
        ),
        migrations.RunPython(seed),
    ]
""",
    "shop/jobs.py": """
from django_proletarian import job_handler
from shop.models import Receipt


@job_handler
def send_receipt(payload):
    Receipt.objects.create(text=payload["text"])
    return "sent"
""",
    "shop/tests.py": """
from django.test import TestCase, TransactionTestCase

from django_proletarian.testing import ProletarianTestMixin
from shop.jobs import send_receipt
from shop.models import Receipt


class InATransaction(ProletarianTestMixin, TestCase):
    def test_jobs_run_and_are_undone(self):
        self.assertNotEnqueued()
        send_receipt.enqueue({"text": "one"})
        self.assertEnqueued(send_receipt, payload_contains={"text": "one"})
        self.assertEqual([run.result for run in self.run_jobs()], ["sent"])
        self.assertTrue(Receipt.objects.filter(text="one").exists())

    test_jobs_run_and_are_undone_again = test_jobs_run_and_are_undone


class WithCommits(ProletarianTestMixin, TransactionTestCase):
    def test_jobs_run_and_the_tables_are_emptied(self):
        self.assertNotEnqueued()
        send_receipt.enqueue({"text": "one"})
        self.assertEqual(len(self.run_jobs()), 1)
        send_receipt.enqueue({"text": "left"})
        self.assertFalse(Receipt.objects.filter(text="left").exists())

    test_jobs_run_and_the_tables_are_emptied_again = test_jobs_run_and_the_tables_are_emptied

    def test_a_live_worker(self):
        with self.live_worker() as worker:
            worker.wait_for(send_receipt.enqueue({"text": "live"}))
        self.assertTrue(Receipt.objects.filter(text="live").exists())


class WithSerializedRollback(ProletarianTestMixin, TransactionTestCase):
    serialized_rollback = True

    def test_what_migrations_made_is_there_and_jobs_are_not(self):
        self.assertNotEnqueued()
        self.assertEqual([receipt.text for receipt in Receipt.objects.all()], ["from a migration"])
        send_receipt.enqueue({"text": "one"})
        self.run_jobs()

    test_what_migrations_made_is_there_and_jobs_are_not_again = test_what_migrations_made_is_there_and_jobs_are_not
""",
    "test_shop.py": """
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import connection

from django_proletarian.models import ArchivedJob, Job
from shop.jobs import send_receipt
from shop.models import Receipt


@pytest.mark.parametrize("time", [1, 2])
def test_jobs_run_in_the_tests_transaction(proletarian_jobs, time):
    proletarian_jobs.assert_not_enqueued()
    send_receipt.enqueue({"text": "one"})
    proletarian_jobs.assert_enqueued(send_receipt, payload={"text": "one"})
    assert [run.result for run in proletarian_jobs.run_jobs()] == ["sent"]
    assert connection.in_atomic_block


@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.django_db(transaction=True)
def test_tables_are_emptied_where_commits_are_real(proletarian_jobs, time):
    assert not connection.in_atomic_block
    assert not Job.objects.exists() and not ArchivedJob.objects.exists()
    send_receipt.enqueue({"text": "one"})
    proletarian_jobs.run_jobs()
    send_receipt.enqueue({"text": "left"})


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_serialized_rollback(proletarian_jobs, request):
    proletarian_jobs.assert_not_enqueued()
    there = [receipt.text for receipt in Receipt.objects.all()]
    assert there == ([] if request.config.getoption("nomigrations") else ["from a migration"])


def test_jobs_go_by_the_time_that_is_pretended(proletarian_jobs):
    with time_machine.travel(datetime(2036, 1, 1, tzinfo=UTC), tick=False):
        send_receipt.enqueue({"text": "later"}, process_in=timedelta(hours=1))
        assert proletarian_jobs.run_jobs() == []
    with time_machine.travel(datetime(2036, 1, 1, 1, tzinfo=UTC), tick=False):
        assert len(proletarian_jobs.run_jobs()) == 1


def test_a_worker_by_its_fixture(proletarian_worker):
    assert proletarian_worker.wait_for(send_receipt.enqueue({"text": "one"})).status == "success"


@pytest.mark.proletarian_worker("mail", threads=2)
def test_a_worker_by_its_marker(proletarian_worker):
    assert proletarian_worker.worker.options.threads == 2
    proletarian_worker.wait_for(send_receipt.enqueue({"text": "one"}, queue="mail"))


@pytest.mark.proletarian_worker
class TestMarked:
    def test_a_worker_runs_beside(self):
        send_receipt.enqueue({"text": "one"})
        deadline = datetime.now() + timedelta(seconds=60)
        while not ArchivedJob.objects.exists():
            assert datetime.now() < deadline


def test_the_database_is_closed_to_tests_that_do_not_ask_for_it():
    from django_proletarian.testing import perform_job, run_jobs

    with pytest.raises(RuntimeError, match="Database access not allowed"):
        run_jobs()
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        perform_job(send_receipt, {"text": "one"})
""",
}
