"""Models: names without colons, payloads decoded, and querysets that read well."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import serializers

from django_proletarian import PlainName, create_queue_worker, enqueue, job_handler
from django_proletarian.connection import ClaimConnection
from django_proletarian.models import ArchivedJob, Job
from django_proletarian.worker import process_next_job
from tests.conftest import rows

pytestmark = pytest.mark.django_db


def test_jobs_are_due_or_scheduled_and_belong_to_a_queue() -> None:
    due, scheduled = enqueue("a"), enqueue("a", process_in=timedelta(hours=1))
    elsewhere = enqueue("a", queue="mail")
    assert set(Job.objects.due().values_list("pk", flat=True)) == {due, elsewhere}
    assert Job.objects.scheduled().get().pk == scheduled
    assert Job.objects.queue("mail").due().get().pk == elsewhere


def test_finished_jobs_are_found_by_their_names_without_a_colon(claim: ClaimConnection) -> None:
    @job_handler("tests/ok")
    def succeed(payload: object) -> None: ...

    succeeded, failed = enqueue("tests/ok"), enqueue("no/handler")
    options = create_queue_worker().options
    while process_next_job(options, claim, "proletarian/default"):
        pass
    assert ArchivedJob.objects.succeeded().get().pk == succeeded
    assert ArchivedJob.objects.failed().queue("proletarian/default").get().pk == failed
    job = ArchivedJob.objects.get(status="failure", queue="proletarian/default", job_type="no/handler")
    assert (job.status, job.queue, job.job_type) == ("failure", "proletarian/default", "no/handler")
    assert {row["status"] for row in rows("proletarian.archived_job")} == {":success", ":failure"}


def test_lookups_by_part_of_a_name() -> None:
    enqueue("shop/mail", queue="billing/eu")
    for lookup in (
        {"queue": "billing/eu"},
        {"queue": ":billing/eu"},
        {"queue__in": ["billing/eu", "x"]},
        {"queue__startswith": "billing/"},
        {"queue__istartswith": "BILLING/"},
        {"queue__iexact": "Billing/EU"},
        {"queue__contains": "ling/e"},
        {"job_type__endswith": "/mail"},
    ):
        assert Job.objects.filter(**lookup).count() == 1, lookup
    assert Job.objects.values_list("queue", "job_type").get() == ("billing/eu", "shop/mail")


def test_the_payload_is_decoded_beside_its_text() -> None:
    enqueue("a", {"email": "a@b.c"})
    job = Job.objects.get()
    assert (job.payload, job.payload_text) == ({"email": "a@b.c"}, '["^ ","~:email","a@b.c"]')
    assert str(job) == f"a {job.pk}"


@pytest.mark.parametrize("name", ["mail", PlainName("send email"), PlainName("")])
def test_dumped_and_loaded_rows_keep_what_is_stored(name: str) -> None:
    enqueue(name, queue=name)
    before = rows("proletarian.job", "job_id, queue, job_type, payload")
    dumped = serializers.serialize("json", Job.objects.all())
    Job.objects.all().delete()
    for loaded in serializers.deserialize("json", dumped):
        loaded.save()
    assert rows("proletarian.job", "job_id, queue, job_type, payload") == before
