"""The admin's overview page: who may see it, and what it says."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.utils import translation

from django_proletarian import NewJob, PlainName, activity, enqueue, enqueue_many

pytestmark = pytest.mark.django_db

PAGE = "/admin/django_proletarian/overview/"
DEFAULT = ":proletarian/default"


def words(client: Client) -> str:
    """What the page says, without its tags."""
    response = client.get(PAGE)
    assert response.status_code == 200
    main = response.content.decode().partition('id="content-main"')[2].partition("</main>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", main).split())


def execute(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


def archive(
    minutes: float, number: int = 1, *, status: str = "success", queue: str = DEFAULT, job_type: str = "shop/mail"
) -> None:
    """Jobs that finished so many minutes ago."""
    execute(
        "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), %s, %s, '1', 1, now(), now(), %s, "
        "now() - %s * interval '1 minute' FROM generate_series(1, %s)",
        *(queue, f":{job_type}", f":{status}", minutes, number),
    )


def worker(name: str, *, silent: float = 0, queues: tuple[str, ...] = ("mail",), running: object = ()) -> None:
    """The row of a worker whose last heartbeat was so many seconds ago."""
    execute(
        "INSERT INTO proletarian.worker VALUES (%s, %s, 'shop-1', 4711, %s, 2, 3, '1.0', now() - interval '3 days', "
        "now() - %s * interval '1 second', %s, 1200, 7)",
        *(uuid4(), name, json.dumps(queues), silent, json.dumps(running)),
    )


def running(queue: str = "mail") -> dict[str, object]:
    return {"job_id": str(uuid4()), "job_type": "shop/mail", "queue": queue, "attempt": 2, "seconds": 90.0}


def test_each_queue_is_told_with_its_numbers(browser: Client) -> None:
    enqueue_many([NewJob("a", queue="mail")] * 3 + [NewJob("a", queue="mail", process_in=timedelta(hours=1))] * 2)
    execute("UPDATE proletarian.job SET process_at = now() - interval '5 minutes' WHERE process_at < clock_timestamp()")
    worker("shop-1", running=[running(), running("elsewhere")])
    said = words(browser)
    assert "mail Due 3 Oldest due for 5 minutes Running 1 Scheduled 2" in said
    assert "proletarian/default Due 0 Oldest due for none Running 0 Scheduled 0" in said


def test_what_finished_in_the_last_hour_and_day_is_told_in_words_and_in_numbers(browser: Client) -> None:
    archive(10, 5)
    archive(10, 2, status="failure")
    archive(90, 7)
    archive(2000, 9)
    said = words(browser)
    assert "Last hour : 5 succeeded, 2 failed, at most 7 in a minute" in said
    assert "Last day : 12 succeeded, 2 failed, at most 7 in half an hour" in said
    page = browser.get(PAGE).content.decode()
    assert 'aria-label="proletarian/default, Last day: 12 succeeded, 2 failed, at most 7 in half an hour"' in page
    # A bar up and one down in the hour, two up and one down in the day.
    assert page.count('class="proletarian-succeeded"') == 3
    assert page.count('class="proletarian-failed"') == 2
    assert len(re.findall(r"\d\d:\d\d to \d\d:\d\d", said)) == 1 + 2


def test_a_queue_that_is_empty_now_but_was_not_today_is_told_too(browser: Client) -> None:
    archive(100, 3, queue=":gone")
    assert re.search(r"gone Due 0 .* Last hour : nothing finished Last day : 3 succeeded", words(browser))


def test_failures_are_counted_beside_many_successes_which_are_estimated(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "MOST_IN_SLOT", 50)
    execute(
        "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), %s, ':shop/mail', '1', 1, now(), now(), "
        "':success', now() - number * interval '1 second' FROM generate_series(1, 3000) AS number",
        DEFAULT,
    )
    archive(20, 3, status="failure")
    [said] = re.findall(r"Last hour : about ([\d,]+) succeeded, 3 failed", words(browser))
    assert int(said.replace(",", "")) == pytest.approx(3000, rel=0.1)


def test_without_an_index_of_failures_they_are_estimated_too(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "MOST_IN_SLOT", 40)
    execute("DROP INDEX proletarian.archived_job_failures")
    execute(
        "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), %s, ':shop/mail', '1', 1, now(), now(), "
        "CASE WHEN number %% 2 = 0 THEN ':success' ELSE ':failure' END, now() - number * interval '1 second' "
        "FROM generate_series(1, 3600) AS number",
        DEFAULT,
    )
    said = words(browser)
    [succeeded, failed] = re.findall(r"Last hour : about ([\d,]+) succeeded, about ([\d,]+) failed", said)[0]
    assert int(succeeded.replace(",", "")) == pytest.approx(1800, rel=0.1)
    assert int(failed.replace(",", "")) == pytest.approx(1800, rel=0.1)


def test_without_the_archives_index_the_page_says_what_is_missing(browser: Client) -> None:
    archive(1)
    execute("DROP INDEX proletarian.archived_job_finished_at")
    said = words(browser)
    assert "the archive has no index on finished_at" in said
    assert "Last hour" not in said


def test_the_types_with_most_failures_come_first_and_lead_to_them(browser: Client) -> None:
    archive(60, 2, status="failure", job_type="shop/rare")
    archive(60, 5, status="failure", job_type="shop/often")
    archive(2000, 9, status="failure", job_type="shop/yesterday")
    said = words(browser)
    assert "Failed jobs shop/often 5 shop/rare 2 Workers" in said
    page = browser.get(PAGE).content.decode()
    [link] = re.findall(r'href="([^"]*shop%2Foften[^"]*)"', page)
    listed = browser.get(link.replace("&amp;", "&")).content.decode()
    assert listed.count("/change/") >= 5
    [rows] = re.findall(r"<tbody>.*?</tbody>", listed, re.DOTALL)
    assert "shop/often" in rows
    assert "shop/rare" not in rows


def test_a_day_without_failures_is_told(browser: Client) -> None:
    archive(1)
    assert "No job failed." in words(browser)


def test_workers_are_told_with_what_they_run_and_dead_ones_in_words(browser: Client) -> None:
    job = running()
    worker("alive-1", running=[job])
    worker("dead-1", silent=180, running=[running()])
    said = words(browser)
    assert re.search(r"alive-1 Alive last heartbeat \d seconds? ago Host shop-1, process 4711 Queues mail", said)
    assert "Threads 3, one of 2 processes Since its start 1,200 attempts succeeded, 7 failed" in said
    assert re.search(r"Runs now shop/mail , attempt 2, for 9\d seconds dead-1", said)
    assert "dead-1 Dead last heartbeat 3 minutes ago" in said
    assert "Ran at its last heartbeat shop/mail , attempt 2, for 4 minutes" in said
    assert f"/job/{job['job_id']}/change/" in browser.get(PAGE).content.decode()


def test_the_job_of_a_dead_worker_does_not_count_as_running(browser: Client) -> None:
    enqueue("a", queue="mail")
    worker("dead-1", silent=180, running=[running()])
    assert "mail Due 1 Oldest due for 0 seconds Running 0" in words(browser)


def test_without_workers_the_page_says_how_to_start_one(browser: Client) -> None:
    assert "No worker is at work. Start one with: manage.py proletarian_worker" in words(browser)


def test_without_a_table_of_workers_the_rest_is_shown(browser: Client) -> None:
    execute("DROP TABLE proletarian.worker")
    said = words(browser)
    assert "the table of workers is not there" in said
    assert "Running unknown" in said


def test_names_are_escaped_and_plain_ones_are_no_trouble(browser: Client) -> None:
    enqueue("a", queue=PlainName("<b>plain"))
    archive(1, status="failure", queue="", job_type="<i>type")
    page = browser.get(PAGE).content.decode()
    assert "&quot;&lt;b&gt;plain&quot;" in page
    assert "&lt;i&gt;type" in page
    assert "<b>plain" not in page
    assert "<i>type" not in page


def test_many_queues_are_cut_short_and_counted(browser: Client) -> None:
    enqueue_many(NewJob("a", queue=f"tenant-{number:03}") for number in range(60))
    said = words(browser)
    assert "11 more queues are not shown." in said
    assert said.count("Oldest due for") == 50


def test_it_stands_in_the_admins_index_beside_the_lists(browser: Client) -> None:
    assert f'href="{PAGE}"' in browser.get("/admin/").content.decode()
    assert f'href="{PAGE}"' in browser.get("/admin/django_proletarian/").content.decode()


def test_it_takes_the_permission_and_no_other(client: Client) -> None:
    clerk = User.objects.create_user("clerk", is_staff=True)
    client.force_login(clerk)
    assert client.get(PAGE).status_code == 403
    clerk.user_permissions.add(Permission.objects.get(codename="view_job"))
    assert client.get(PAGE).status_code == 403
    clerk.user_permissions.set([Permission.objects.get(codename="view_overview")])
    enqueue("a")
    archive(1, status="failure")
    worker("alive-1", running=[running()])
    page = client.get(PAGE)
    assert page.status_code == 200
    # Lists and jobs that this person may not see are named, not linked.
    assert "/django_proletarian/job/" not in page.content.decode()
    assert "/django_proletarian/archivedjob/" not in page.content.decode()


def test_nobody_who_is_not_logged_in_sees_it(client: Client) -> None:
    assert client.get(PAGE).status_code == 302
    client.force_login(User.objects.create_user("customer"))
    assert client.get(PAGE).status_code == 302


def test_there_is_nothing_to_add_change_or_delete(browser: Client) -> None:
    for page in ("add/", f"{uuid4()}/change/", f"{uuid4()}/delete/"):
        assert browser.get(PAGE + page).status_code == 404
    permissions = Permission.objects.filter(content_type__model="overview")
    assert [permission.codename for permission in permissions] == ["view_overview"]


def test_a_decimal_comma_stays_out_of_the_drawing(browser: Client) -> None:
    archive(10, 5)
    archive(20, 3)
    with translation.override("nb"):
        page = browser.get(PAGE, headers={"Accept-Language": "nb"}).content.decode()
    assert not re.findall(r' (?:x|y|width|height)="[^"]*,[^"]*"', page)
