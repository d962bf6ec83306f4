"""The admin: both tables to look at, nothing to change, no query that grows with the archive."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_proletarian import PlainName, enqueue

pytestmark = pytest.mark.django_db

JOBS = "/admin/django_proletarian/job/"
ARCHIVE = "/admin/django_proletarian/archivedjob/"


def archive(status: str = "success", payload: str = "[1]", queue: str = ":proletarian/default") -> str:
    job_id = str(uuid4())
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proletarian.archived_job VALUES (%s, %s, ':shop/mail', %s, 1, now(), now(), %s, now())",
            [job_id, queue, payload, f":{status}"],
        )
    return job_id


def test_lists_show_names_without_colons(browser: Client) -> None:
    job_id = enqueue("shop/mail", {"email": "a@b.c"}, queue="billing")
    page = browser.get(JOBS).content.decode()
    assert str(job_id) in page
    assert "shop/mail" in page
    assert ":shop/mail" not in page
    archived = archive("failure")
    page = browser.get(ARCHIVE).content.decode()
    assert archived in page
    assert "failure" in page


def test_filters_by_status_queue_and_type(browser: Client) -> None:
    good, bad, elsewhere = archive(), archive("failure"), archive(queue="plain queue")

    def shown(**query: str) -> set[str]:
        page = browser.get(ARCHIVE, query).content.decode()
        return {job_id for job_id in (good, bad, elsewhere) if job_id in page}

    assert shown() == {good, bad, elsewhere}
    assert shown(status="failure") == {bad}
    assert shown(queue="proletarian/default") == {good, bad}
    assert shown(queue='"plain queue"') == {elsewhere}
    assert shown(job_type="shop/mail") == {good, bad, elsewhere}
    assert shown(job_type="other") == set()
    assert shown(status="nonsense") == set()


def test_search_finds_a_job_by_its_id_and_nothing_by_anything_else(browser: Client) -> None:
    wanted, other = archive(), archive()
    for text, found in [(wanted, {wanted}), (f" {wanted.upper()} ", {wanted}), (wanted[:8], set()), ("1", set())]:
        page = browser.get(ARCHIVE, {"q": text}).content.decode()
        assert {job_id for job_id in (wanted, other) if f"{job_id}/change" in page} == found


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ('["^ ","~:email","<b>a@b.c</b>"]', "&lt;b&gt;a@b.c&lt;/b&gt;"),
        ('["^ ","~:email', "[&quot;^ &quot;,&quot;~:email"),  # cut off: as it is, under the reason
        ('["~#odd",[1]]', "odd"),
    ],
)
def test_a_payload_is_shown_decoded_and_escaped(browser: Client, payload: str, shown: str) -> None:
    page = browser.get(f"{ARCHIVE}{archive(payload=payload)}/change/").content.decode()
    assert shown in page
    assert "<b>a@b.c" not in page


def test_keywords_in_a_payload_are_shown_as_the_texts_they_equal(browser: Client) -> None:
    payload = '["^ ","~:email","~:none","~:ids",[1,["^ ","^0","a@b.c"]]]'
    page = browser.get(f"{ARCHIVE}{archive(payload=payload)}/change/").content.decode()
    assert "{&#x27;email&#x27;: &#x27;none&#x27;, &#x27;ids&#x27;: [1, {&#x27;email&#x27;: &#x27;a@b.c&#x27;}]}" in page
    assert "Keyword" not in page


def test_a_plain_name_is_no_trouble(browser: Client) -> None:
    job_id = enqueue(PlainName("send email"), queue=PlainName(""))
    assert browser.get(f"{JOBS}{job_id}/change/").status_code == 200


def test_nothing_can_be_added_changed_or_deleted(browser: Client) -> None:
    job_id = archive()
    assert browser.get(f"{ARCHIVE}add/").status_code == 403
    assert browser.post(f"{ARCHIVE}{job_id}/change/", {}).status_code == 403
    assert browser.post(f"{ARCHIVE}{job_id}/delete/", {"post": "yes"}).status_code == 403
    assert "delete_selected" not in browser.get(ARCHIVE).content.decode()


def test_a_person_without_the_right_sees_nothing(client: Client) -> None:
    client.force_login(User.objects.create_user("clerk", is_staff=True))
    assert client.get(JOBS).status_code == 403


@pytest.mark.parametrize("page", [JOBS, ARCHIVE])
def test_lists_count_to_a_limit_only_and_load_no_payloads(browser: Client, page: str) -> None:
    archive()
    enqueue("a")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert browser.get(page, {"status": "success"} if page == ARCHIVE else {}).status_code == 200
    ours: list[Any] = [query["sql"] for query in queries if "proletarian" in query["sql"]]
    assert ours
    for sql in ours:
        assert "payload" not in sql
        assert "DISTINCT" not in sql
        assert "COUNT" not in sql or "LIMIT 10000" in sql
