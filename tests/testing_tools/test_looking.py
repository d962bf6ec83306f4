"""What a test says about the queue, and what it is told when that is not so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_proletarian import PlainName, enqueue, enqueue_many, job_handler
from django_proletarian.models import ArchivedJob
from django_proletarian.testing import assert_enqueued, assert_not_enqueued, capture_jobs, enqueued_jobs, run_jobs

pytestmark = pytest.mark.django_db

THEN = datetime(2036, 1, 1, tzinfo=UTC)
ID = UUID("00000000-0000-4000-8000-000000000001")


def failure(**wanted: Any) -> str:
    """What assert_enqueued says."""
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(wanted.pop("job_type", None), **wanted)
    return str(caught.value)


def test_jobs_are_listed_in_the_order_in_which_they_were_enqueued() -> None:
    enqueue_many([(f"tests/{number}", number) for number in range(20)])
    enqueue("tests/later", queue="mail", process_in=timedelta(hours=1))
    enqueue("tests/last")
    assert [job.payload for job in enqueued_jobs()] == [*range(20), None, None]
    assert [job.job_type for job in enqueued_jobs(queue="mail")] == ["tests/later"]
    assert [job.payload for job in enqueued_jobs("tests/7")] == [7]


def test_a_handler_stands_for_its_job_type() -> None:
    handler = job_handler("tests/handled")(lambda payload: None)
    handler.enqueue("x")
    assert [job.payload for job in enqueued_jobs(handler)] == ["x"]
    assert assert_enqueued(handler).payload == "x"
    with pytest.raises(AssertionError):
        assert_not_enqueued(handler)


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"job_type": "shop/mail"},
        {"job_type": ":shop/mail"},
        {"queue": "mail"},
        {"process_at": THEN},
        {"process_at": THEN + timedelta(seconds=1), "within": timedelta(seconds=1)},
        {"payload_contains": {"id": ID}},
        {"payload_contains": {"lines": [{"sku": "a", "n": 1}]}},
        {"payload_contains": {"to": {"email": "a@b.c"}}},
        {"payload_contains": {}},
        {"payload_contains": {"size": (1, 2)}},  # as a row would give it back
        {"count": 1},
    ],
    ids=str,
)
def test_a_job_that_is_as_wanted_is_found(wanted: dict[str, Any]) -> None:
    enqueue(
        "shop/mail",
        {"id": ID, "lines": [{"sku": "a", "n": 1}], "to": {"email": "a@b.c", "name": "A"}, "size": [1, 2]},
        queue="mail",
        process_at=THEN,
    )
    assert assert_enqueued(wanted.pop("job_type", None), **wanted).job_type == "shop/mail"


@pytest.mark.parametrize(
    ("wanted", "said", "why"),
    [
        ({"job_type": "shop/print"}, "No job of type shop/print is in the queue. 1 job:", "type shop/mail"),
        ({"job_type": PlainName("shop/mail")}, 'No job of type "shop/mail" is', "type shop/mail"),
        ({"queue": "billing"}, "No job on queue billing is", "queue mail"),
        ({"process_at": THEN + timedelta(seconds=1)}, "No job due 2036-01-01T00:00:01+00:00 is", "due 2036-01-01"),
        (
            {"process_at": THEN + timedelta(seconds=3), "within": timedelta(seconds=2)},
            "No job due 2036-01-01T00:00:03+00:00 within 0:00:02 is",
            "due 2036-01-01",
        ),
        ({"payload": {"id": 1}}, "No job with payload {'id': 1} is", "another payload"),
        (
            {"payload_contains": {"id": 2}},
            "No job with a payload that contains {'id': 2} is",
            "payload['id'] is 1",
        ),
        ({"payload_contains": {"to": {"phone": "1"}}}, "No job", "no payload['to']['phone']"),
        ({"payload_contains": {"lines": [1]}}, "No job", "payload['lines'] is [1, 2]"),
        ({"payload_contains": "text"}, "No job", "payload is {"),
        ({"count": 2}, "1 job in the queue, not 2. 1 job:", "payload {'id': 1, 'to': {'email': 'a@b.c'}, 'lines': [1"),
    ],
    ids=str,
)
def test_what_is_there_is_told_with_how_it_differs(wanted: dict[str, Any], said: str, why: str) -> None:
    enqueue("shop/mail", {"id": 1, "to": {"email": "a@b.c"}, "lines": [1, 2]}, queue="mail", process_at=THEN)
    message = failure(**wanted)
    assert message.startswith(said)
    assert "\n  shop/mail on mail, due 2036-01-01T00:00:00+00:00, payload {'id': 1" in message
    assert why in message


def test_an_empty_queue_is_told_as_such() -> None:
    assert failure(job_type="shop/mail") == "No job of type shop/mail is in the queue. There is none at all."


def test_of_many_jobs_and_of_long_payloads_a_part_is_told() -> None:
    enqueue_many([("shop/mail", "x" * 10_000)] * 50)
    message = failure(job_type="shop/print")
    assert "50 jobs:" in message
    assert message.endswith("… and 30 more")
    assert len(message) < 20 * 700


def test_a_job_that_should_not_be_there_is_told() -> None:
    enqueue("shop/mail", {"id": 1})
    enqueue("shop/mail", {"id": 2})
    assert_not_enqueued("shop/print")
    assert_not_enqueued("shop/mail", payload_contains={"id": 3})
    with pytest.raises(AssertionError) as caught:
        assert_not_enqueued("shop/mail", payload_contains={"id": 2})
    assert str(caught.value).startswith(
        "1 job of type shop/mail with a payload that contains {'id': 2} in the queue. 1 job:\n  shop/mail on"
    )


def test_a_payload_that_can_not_be_read_is_told_and_not_raised() -> None:
    enqueue("shop/mail", 1)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE proletarian.job SET payload = '[oops'")
    assert "payload [oops  <- " in failure(payload=1)


@override_settings(PROLETARIAN={"SERIALIZER": "django_proletarian.serializers.JSONSerializer"})
def test_payloads_are_compared_as_the_projects_serializer_writes_them() -> None:
    enqueue("shop/mail", {"id": ID})
    assert_enqueued("shop/mail", payload={"id": ID})
    assert_enqueued("shop/mail", payload={"id": str(ID)})


def test_what_a_block_enqueues_is_captured_whether_it_ran_or_not() -> None:
    job_handler("tests/run")(lambda payload: None)
    enqueue("tests/before")
    with capture_jobs() as jobs:
        enqueue("tests/run", queue="run")
        run_jobs("run")
        with transaction.atomic():
            enqueue("tests/undone")
            transaction.set_rollback(True)
        enqueue("tests/waits")
        assert jobs == []
    enqueue("tests/after")
    assert [job.job_type for job in jobs] == ["tests/run", "tests/waits"]
    assert isinstance(jobs[0], ArchivedJob)
