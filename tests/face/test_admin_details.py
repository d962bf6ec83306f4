"""The admin's page of one job: its payload as a person reads it, its attempts, its handler."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_proletarian import enqueue, job_handler
from django_proletarian.admin import stored_jobs
from django_proletarian.admin.payloads import readable
from django_proletarian.transit import URI, Char, Keyword, Symbol, TaggedValue
from tests.face.test_admin import ARCHIVE, ATTEMPTS, JOBS, WORKERS, archive, attempt, execute, words


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({}, "{}"),
        ({"a": [], "b": None}, '{"a" [], "b" null}'),
        ([1, 2.5, True, "a\nb"], '[1, 2.5, true, "a\\nb"]'),
        ({Keyword("order-id"): Keyword("shop/new")}, "{:order-id :shop/new}"),  # not as the texts that they equal
        (Symbol("inc"), "inc (symbol)"),
        (Char("a"), '"a" (character)'),
        (URI("https://a.b"), "https://a.b (URI)"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001 (UUID)"),
        (datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC), "2026-01-02 03:04:05.006+00:00 (instant)"),
        (Decimal("1.50"), "1.50 (decimal)"),
        (b"\x00\x01", "AAE= (base64, 2 bytes)"),
        (frozenset({1}), "set {1}"),
        (TaggedValue("point", [1, 2]), 'tag "point": [1, 2]'),
        ({"lines": [{"id": 1}, {"id": 2}]}, '{\n  "lines" [\n    {"id" 1}\n    {"id" 2}\n  ]\n}'),
        ("x" * 30_000, '"' + "x" * 19_999 + "\n…"),
    ],
)
def test_payloads_are_readable_each_kind_of_value_for_what_it_is(payload: object, shown: str) -> None:
    assert readable(payload) == shown


def test_a_payload_nested_without_end_is_cut() -> None:
    payload: Any = 1
    for _ in range(900):
        payload = [payload]
    assert readable(payload).count("[") == 51
    assert "[…]" in readable(payload)


pages = pytest.mark.django_db


@pages
@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ('["^ ","~:email","<b>a@b.c</b>"]', "{:email &quot;&lt;b&gt;a@b.c&lt;/b&gt;&quot;}"),
        ('["^ ","~:email', "[&quot;^ &quot;,&quot;~:email"),  # cut off: as it is, under the reason
        ('["~#odd",[1]]', "tag &quot;odd&quot;: [1]"),
    ],
)
def test_a_payload_is_shown_decoded_and_as_it_is_stored_and_escaped(browser: Client, payload: str, shown: str) -> None:
    page = browser.get(f"{ARCHIVE}{archive(payload=payload)}/change/").content.decode()
    assert shown in page
    assert "<b>a@b.c" not in page
    assert payload.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;") in page


@pages
def test_a_huge_payload_is_neither_loaded_nor_decoded_whole(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_jobs, "MOST_DECODED", 1000)
    monkeypatch.setattr(stored_jobs, "MOST_RAW", 100)
    job_id = enqueue("a", "x" * 5000)
    with CaptureQueriesContext(connection) as queries:
        page = browser.get(f"{JOBS}{job_id}/change/").content.decode()
    assert "It is longer than 1,000 characters." in page
    assert page.count("x" * 90) == 1
    asked = [query["sql"] for query in queries if '"payload"' in query["sql"]]
    assert asked
    assert all("LEFT(" in sql for sql in asked)


@pages
def test_a_job_is_told_with_its_attempts_the_newest_first_their_tracebacks_folded(browser: Client) -> None:
    job_id = archive("failure")
    trace = "Traceback (most recent call last):\n  <module>"
    attempt(job_id, "retry", exception_class="ValueError", message="first <try>", traceback=trace, worker_id="shop-1")
    attempt(job_id, "failure", attempt=2, exception_class="KeyError", message="'x'")
    said = words(browser, f"{ARCHIVE}{job_id}/change/")
    assert said.index("Attempt 2 failure") < said.index("Attempt 1 retry")
    assert "3.0 seconds, shop-1 ValueError : first &lt;try&gt; Traceback Traceback (most recent" in said
    page = browser.get(f"{ARCHIVE}{job_id}/change/").content.decode()
    details = page.partition("<summary>Traceback</summary>")
    assert details[0].rstrip().endswith("<details>")
    assert details[2].lstrip().startswith('<pre class="proletarian-text" tabindex="0">Traceback')


@pages
def test_a_job_is_told_with_the_handler_of_its_type_and_what_it_says_of_itself(browser: Client) -> None:
    @job_handler("shop/documented")
    def send_receipt(payload: object) -> None:
        """Sends <one> receipt."""

    said = words(browser, f"{JOBS}{enqueue('shop/documented')}/change/")
    assert f"{__name__}.{send_receipt.__qualname__}".replace("<", "&lt;").replace(">", "&gt;") in said
    assert "Sends &lt;one&gt; receipt." in said
    assert "No handler here has this job type." in words(browser, f"{JOBS}{enqueue('shop/other')}/change/")


@pages
def test_the_page_of_a_job_that_has_finished_leads_to_the_archive(browser: Client) -> None:
    job_id = archive()
    response = browser.get(f"{JOBS}{job_id}/change/")
    assert (response.status_code, response["Location"]) == (302, f"{ARCHIVE}{job_id}/change/")
    assert "The job has finished, and is in the archive now." in words(browser, response["Location"])
    assert browser.get(f"{JOBS}{uuid.uuid4()}/change/")["Location"] == "/admin/"


@pages
def test_a_jobs_page_tells_dates_in_full_beside_the_words(browser: Client) -> None:
    job_id = archive(finished_at="2026-01-03T12:00:00+00")
    assert re.search(r"Finished: 2026-01-03 13:00:00 \(\d+ days ago\)", words(browser, f"{ARCHIVE}{job_id}/change/"))
    job_id = enqueue("a")
    execute("UPDATE proletarian.job SET process_at = '2170-01-03T12:00:00+00'")
    assert re.search(r"Next run: 2170-01-03 13:00:00 \(in \d+ days\)", words(browser, f"{JOBS}{job_id}/change/"))


@pages
def test_pages_have_no_script_and_no_style_of_their_own(browser: Client) -> None:
    job_id = archive("failure")
    attempt(job_id, "failure", traceback="t", result="[1]")
    enqueue("a")
    for page in (JOBS, ARCHIVE, f"{ARCHIVE}{job_id}/change/"):
        text = browser.get(page).content.decode()
        assert " style=" not in text
        assert "<style" not in text
        assert "onclick" not in text
        assert "django_proletarian/admin.css" in text


@pages
def test_pages_work_without_the_tables_of_attempts_and_workers(browser: Client) -> None:
    execute("DROP TABLE proletarian.job_attempt, proletarian.worker")
    job_id = archive("failure")
    enqueue("a")
    for page in (JOBS, ARCHIVE, f"{ARCHIVE}{job_id}/change/", ATTEMPTS, WORKERS, f"{ATTEMPTS}?outcome=crash"):
        assert browser.get(page).status_code == 200, page
