"""The tutorial's shop, tested with the functions and the pytest fixtures of django_proletarian.

No test of ours: test_tutorial copies it into the project that it has made by the tutorial, and runs it there.
"""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.db import connection, transaction
from django.test import override_settings

from django_proletarian.models import ArchivedJob, Job
from django_proletarian.testing import (
    FrozenClock,
    JobRun,
    LiveWorker,
    assert_enqueued,
    assert_not_enqueued,
    capture_jobs,
    empty_tables,
    empty_tables_around,
    enqueued_jobs,
    frozen_time,
    live_worker,
    obeying_frozen_time,
    perform_job,
    run_jobs,
)
from shop.jobs import send_receipt
from shop.models import Order

NOON = datetime(2036, 1, 1, 12, tzinfo=UTC)
URL = "/order/?email=ada@example.com"


@pytest.mark.django_db
def test_an_order_is_looked_for_in_the_queue_and_its_job_is_run(client):
    assert_not_enqueued(send_receipt)
    client.get(URL)
    order = Order.objects.get()
    job = assert_enqueued(send_receipt, payload={"order_id": order.pk}, count=1)
    assert [each.job_id for each in enqueued_jobs()] == [job.job_id]
    [run] = run_jobs()
    assert isinstance(run, JobRun)
    assert (run.outcome, run.job.job_id, connection.in_atomic_block) == ("success", job.job_id, True)
    order.refresh_from_db()
    assert order.receipt_sent


@pytest.mark.django_db
def test_a_block_tells_what_was_enqueued_in_it(client):
    send_receipt.enqueue({"order_id": 1})
    with capture_jobs() as jobs:
        client.get(URL)
    assert [(job.job_type, job.payload) for job in jobs] == [
        ("shop.jobs/send_receipt", {"order_id": Order.objects.get().pk})
    ]


@pytest.mark.django_db
def test_one_handler_is_run_without_a_row():
    order = Order.objects.create(email="ada@example.com")
    perform_job(send_receipt, {"order_id": order.pk}, attempts=2)
    order.refresh_from_db()
    assert order.receipt_sent
    with pytest.raises(Order.DoesNotExist):
        perform_job(send_receipt, {"order_id": 404})


@pytest.mark.django_db
def test_retries_are_as_late_as_the_tutorial_says_by_a_frozen_clock():
    with FrozenClock(NOON) as clock:
        send_receipt.enqueue({"order_id": 404})
        retries = []
        while enqueued_jobs():
            [run] = run_jobs(raise_errors=False)
            retries.append((run.outcome, run.retry_in))
            clock.advance(run.retry_in or 0)
    second, minute = timedelta(seconds=1), timedelta(minutes=1)
    assert retries == [("retry", second), ("retry", minute), ("retry", minute), ("failure", None)]
    assert ArchivedJob.objects.get().finished_at == NOON + second + 2 * minute


@pytest.mark.django_db
def test_jobs_go_by_the_time_that_time_machine_pretends():
    with obeying_frozen_time(), time_machine.travel(NOON, tick=False):
        assert frozen_time() == NOON
        send_receipt.enqueue({"order_id": 1}, process_in=timedelta(hours=1))
        assert_enqueued(send_receipt, process_at=NOON + timedelta(hours=1))
        assert run_jobs() == []
    assert frozen_time() is None


@pytest.mark.django_db
def test_immediate_jobs_run_at_the_commit(client, django_capture_on_commit_callbacks):
    with override_settings(PROLETARIAN={"IMMEDIATE": True}):
        with django_capture_on_commit_callbacks(execute=True):
            client.get(URL)
            assert not Order.objects.get().receipt_sent
        assert Order.objects.get().receipt_sent
    assert_not_enqueued()


@pytest.mark.django_db(transaction=True)
def test_immediate_jobs_run_at_a_real_commit(client):
    with empty_tables_around(), override_settings(PROLETARIAN={"IMMEDIATE": True}):
        client.get(URL)
        assert Order.objects.get().receipt_sent
        assert ArchivedJob.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_worker_runs_for_a_block(client):
    with empty_tables_around():
        send_receipt.enqueue({"order_id": 404})
        empty_tables()
        with live_worker() as worker:
            assert isinstance(worker, LiveWorker)
            client.get(URL)
            worker.wait_until_empty()
        assert [job.status for job in ArchivedJob.objects.all()] == ["success"]


# -- The fixtures and the marker -------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [1, 2])
def test_the_fixture_has_the_functions_and_asks_for_the_database(client, proletarian_jobs, time):
    client.get(URL)
    proletarian_jobs.assert_enqueued("shop.jobs/send_receipt", payload_contains={})
    assert len(proletarian_jobs.run_jobs()) == 1
    assert ArchivedJob.objects.count() == 1


@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.django_db(transaction=True)
def test_the_fixture_empties_the_tables_where_commits_are_real(client, proletarian_jobs, time):
    assert not Job.objects.exists()
    assert not ArchivedJob.objects.exists()
    client.get(URL)
    proletarian_jobs.run_jobs()
    client.get(URL)


def test_the_fixture_has_a_worker(client, proletarian_worker):
    with transaction.atomic():
        order = Order.objects.create(email="ada@example.com")
        job_id = send_receipt.enqueue({"order_id": order.pk})
    assert proletarian_worker.wait_for(job_id).status == "success"


@pytest.mark.proletarian_worker("mail", threads=2)
def test_the_marker_says_which_worker(proletarian_worker):
    order = Order.objects.create(email="ada@example.com")
    archived_job = proletarian_worker.wait_for(send_receipt.enqueue({"order_id": order.pk}, queue="mail"))
    assert (archived_job.queue, proletarian_worker.worker.options.threads) == ("mail", 2)


@pytest.mark.proletarian_worker
def test_the_marker_alone_has_a_worker_beside_the_test(client):
    client.get(URL)
    deadline = datetime.now() + timedelta(seconds=60)
    while not Order.objects.get().receipt_sent:
        assert datetime.now() < deadline
