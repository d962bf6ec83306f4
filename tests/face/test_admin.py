"""The admin's lists: what they say of jobs, and how they are narrowed down."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_proletarian import NewJob, PlainName, enqueue, enqueue_many, job_search
from django_proletarian.admin import lists
from django_proletarian.connection import ClaimConnection
from django_proletarian.models import Worker
from django_proletarian.store import claim_due_jobs
from django_proletarian.tables import Tables

pytestmark = pytest.mark.django_db

JOBS = "/admin/django_proletarian/job/"
ARCHIVE = "/admin/django_proletarian/archivedjob/"
ATTEMPTS = "/admin/django_proletarian/jobattempt/"
WORKERS = "/admin/django_proletarian/worker/"


def execute(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


def archive(
    status: str = "success",
    payload: str = "[1]",
    queue: str = ":proletarian/default",
    finished_at: str = "now",
    job_type: str = ":shop/mail",
) -> str:
    job_id = str(uuid4())
    execute(
        "INSERT INTO proletarian.archived_job VALUES (%s, %s, %s, %s, 1, now(), now() - interval '90 seconds', %s, %s)",
        *(job_id, queue, job_type, payload, f":{status}", finished_at),
    )
    return job_id


def attempt(job_id: str | UUID, outcome: str = "failure", **columns: object) -> None:
    values = {"job_id": job_id, "attempt": 1, "outcome": outcome, **columns}
    execute(
        f"INSERT INTO proletarian.job_attempt ({', '.join(values)}, started_at, finished_at) "
        f"VALUES ({', '.join(['%s'] * len(values))}, now() - interval '3 seconds', now())",
        *values.values(),
    )


def insert_worker(name: str, *, silent: float = 0, running: object = ()) -> UUID:
    process_id = uuid4()
    execute(
        "INSERT INTO proletarian.worker VALUES (%s, %s, 'shop-1', 4711, '[\"mail\"]', 2, 3, '1.0', now(), "
        "now() - %s * interval '1 second', %s, 1200, 7)",
        *(process_id, name, silent, json.dumps(running)),
    )
    return process_id


def words(browser: Client, page: str, **query: str) -> str:
    """What a page says, without its tags."""
    response = browser.get(page, query)
    assert response.status_code == 200
    return " ".join(re.sub(r"<[^>]*>", " ", response.content.decode()).split())


def listed(browser: Client, page: str, **query: str) -> list[str]:
    """The ids of a list, in its order."""
    response = browser.get(page, query)
    assert response.status_code == 200
    return [str(job.pk) for job in response.context["cl"].result_list]


def rows(browser: Client, page: str, **query: str) -> list[str]:
    """Each row of a list in words."""
    body = browser.get(page, query).content.decode().partition("<tbody>")[2].partition("</tbody>")[0]
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in body.split("</tr>")[:-1]]


# -- What lists say --------------------------------------------------------------------------------------------------


def test_a_job_is_told_with_its_state_its_age_and_its_next_run_in_words(browser: Client) -> None:
    job_id = enqueue("shop/mail", {"email": "a@b.c"}, queue="billing", process_in=timedelta(hours=3, seconds=30))
    execute("UPDATE proletarian.job SET enqueued_at = now() - interval '5 days'")
    assert rows(browser, JOBS) == [f"shop/mail scheduled in 3 hours billing 0 5 days ago {str(job_id)[:8]}"]
    execute("UPDATE proletarian.job SET attempts = 2")
    assert "retrying in 3 hours billing 2" in rows(browser, JOBS)[0]
    execute("UPDATE proletarian.job SET process_at = now() - interval '170 minutes'")
    assert "due 3 hours ago billing 2" in rows(browser, JOBS)[0]


def test_a_running_job_is_told_with_the_worker_that_has_it(browser: Client) -> None:
    job_id = enqueue("shop/mail")
    told = {"job_id": str(job_id), "job_type": "shop/mail", "queue": "mail", "attempt": 1, "seconds": 300.0}
    insert_worker("shop-1", running=[told])
    [row] = rows(browser, JOBS)
    assert "running" in row
    assert "runs now, for 5 minutes, at shop-1" in row
    assert listed(browser, JOBS, state="running") == [str(job_id)]
    assert listed(browser, JOBS, state="due") == []


def test_a_leased_job_is_running_though_its_row_is_not_due(browser: Client) -> None:
    job_id = enqueue("a", process_in=timedelta(minutes=1))
    execute("UPDATE proletarian.job SET attempts = 1")
    assert listed(browser, JOBS, state="retrying") == [str(job_id)]
    told = {"job_id": str(job_id), "job_type": "a", "queue": "q", "attempt": 1, "seconds": 300.0, "leased": True}
    insert_worker("shop-1", running=[told])
    assert "a running runs now, for 5 minutes, at shop-1 " in rows(browser, JOBS)[0]
    execute("DELETE FROM proletarian.worker")
    insert_worker("shop-1", running=[{**told, "progress": {"done": 3, "total": 10, "message": "<page> 4"}}])
    progress = "3 of 10 (30 %): &lt;page&gt; 4"
    assert f"runs now, for 5 minutes, at shop-1: {progress}" in rows(browser, JOBS)[0]
    page = browser.get(f"{WORKERS}{Worker.objects.get().pk}/change/").content.decode()
    assert f"attempt 1: {progress}" in page
    assert listed(browser, JOBS, state="running") == [str(job_id)]
    assert listed(browser, JOBS, state="retrying") == listed(browser, JOBS, state="scheduled") == []


@pytest.mark.django_db(transaction=True)
def test_a_job_that_any_worker_has_locked_is_running(browser: Client, claim: ClaimConnection) -> None:
    enqueue_many([NewJob("a"), NewJob("a")])
    [locked] = claim_due_jobs(claim, Tables(), ["proletarian/default"])
    assert ["running" in row for row in rows(browser, JOBS)] == [True, False]
    assert listed(browser, JOBS, state="running") == [locked.job_id]


def test_an_archived_failure_is_told_with_the_last_line_of_its_last_error(browser: Client) -> None:
    job_id = archive("failure")
    attempt(job_id, "retry", exception_class="ValueError", message="not this one")
    attempt(job_id, exception_class="shop.mail.Refused", message="Was refused:\n\n550 <no> such mailbox\n", attempt=2)
    attempt(job_id, "success", attempt=2)  # of a job that was run again meanwhile, say
    other = archive("failure", finished_at="2020-01-01")
    attempt(other, "crash")
    first, second = rows(browser, ARCHIVE)
    assert " ago Refused: 550 &lt;no&gt; such mailbox proletarian/default 1 90 seconds " in first
    assert " ago crash proletarian/default 1 0.0 seconds " in second
    assert "days ago" in second


def test_names_are_shown_without_colons_and_plain_names_in_quotes(browser: Client) -> None:
    enqueue(PlainName("send email"), queue=PlainName("a queue"))
    assert " ago &quot;a queue&quot; 0 " in rows(browser, JOBS)[0]
    assert ":shop" not in words(browser, ARCHIVE)


def test_attempts_and_workers_have_lists_of_their_own(browser: Client) -> None:
    job_id = archive("failure")
    attempt(job_id, worker_id="shop-1", exception_class="ValueError", message="no", traceback="Traceback <here>")
    [row] = rows(browser, ATTEMPTS, q=job_id)
    assert row.startswith(f"{job_id[:8]} 1 failure ValueError: no shop-1 ")
    assert rows(browser, ATTEMPTS, outcome="crash") == []
    [shown] = browser.get(ATTEMPTS).context["cl"].result_list
    page = browser.get(f"{ATTEMPTS}{shown.pk}/change/").content.decode()
    assert "Traceback &lt;here&gt;" in page
    assert f'{ARCHIVE}{job_id}/change/">{job_id}' in page
    insert_worker("b", silent=3600)
    running = {"job_id": job_id, "job_type": "shop/mail", "queue": "mail", "attempt": 2, "seconds": 90.0}
    process_id = insert_worker("a", running=[running])
    first, second = rows(browser, WORKERS)
    assert first.startswith("a alive shop-1, 4711 mail 2 × 3 1 1200 7 ")
    assert second.startswith("b dead shop-1, 4711 mail 2 × 3 0 1200 7 ")
    assert "shop/mail for 90 seconds, attempt 2" in words(browser, f"{WORKERS}{process_id}/change/")


# -- Filters ---------------------------------------------------------------------------------------------------------


def test_jobs_are_listed_queue_by_queue_and_filtered_by_state_queue_and_type(browser: Client) -> None:
    due, later, other = enqueue("a"), enqueue("a", process_in=timedelta(hours=1)), enqueue("b", queue="another")
    tried = enqueue("a", queue="another", process_in=timedelta(hours=2))
    execute("UPDATE proletarian.job SET attempts = 1 WHERE job_id = %s", tried)

    def shown(**query: str) -> list[Any]:
        return [UUID(job_id) for job_id in listed(browser, JOBS, **query)]

    assert shown() == [other, tried, due, later]
    assert shown(state="due") == [other, due]
    assert shown(state="scheduled") == [tried, later]
    assert shown(state="retrying") == [tried]
    assert shown(state="retrying", queue="proletarian/default") == []
    assert shown(state="nonsense") == []
    assert shown(queue="another") == [other, tried]
    assert shown(job_type="a") == [tried, due, later]
    assert shown(job_type="a", queue="another", state="scheduled") == [tried]
    assert shown(job_type="none") == []


def test_archived_jobs_are_listed_newest_first_and_filtered_by_status_queue_and_type(browser: Client) -> None:
    good, bad = archive(finished_at="2026-01-03"), archive("failure", finished_at="2026-01-02")
    elsewhere = archive(queue="plain queue", finished_at="2026-01-01")

    def shown(**query: str) -> list[str]:
        return listed(browser, ARCHIVE, **query)

    assert shown() == [good, bad, elsewhere]
    [finished] = {int(number) for number in re.findall(r"\?o=-?(\d+)", browser.get(ARCHIVE).content.decode())}
    assert shown(o=str(finished)) == [elsewhere, bad, good]
    assert shown(o=str(finished + 1)) == [good, bad, elsewhere]  # no index has that order
    assert shown(status="failure") == [bad]
    assert shown(queue="proletarian/default") == [good, bad]
    assert shown(queue='"plain queue"') == [elsewhere]
    assert shown(job_type="shop/mail") == [good, bad, elsewhere]
    assert shown(job_type="other") == []
    assert shown(status="nonsense") == []


def test_queue_and_priority_are_told_apart_and_a_queue_has_all_its_priorities(browser: Client) -> None:
    plain, high = enqueue("a", queue="mail"), enqueue("a", queue="mail", priority=10)
    other = enqueue("a", queue="mail-box")
    told = [row.partition(" ago ")[2].partition(" 0 ")[0] for row in rows(browser, JOBS)]
    assert sorted(told) == ["mail", "mail, priority 10", "mail-box"]
    assert {*listed(browser, JOBS, queue="mail")} == {str(plain), str(high)}
    assert listed(browser, JOBS, queue="mail+10", state="due") == [str(high)]
    assert {*listed(browser, JOBS, queue="mail", job_type="a")} == {str(plain), str(high)}
    assert listed(browser, JOBS, queue="mail-box") == [str(other)]
    archived = archive(queue=":mail-5")
    assert listed(browser, ARCHIVE, queue="mail") == [archived]
    offered = {spec.title: [choice["display"] for choice in spec.choices(cl)] for cl, spec in filters(browser, JOBS)}
    assert "mail+10" not in offered["queue"]


def test_a_list_of_one_queue_takes_no_statement_for_each_of_its_priorities(browser: Client) -> None:
    enqueue("a", queue="mail")
    with CaptureQueriesContext(connection) as queries:
        assert listed(browser, JOBS, queue="mail")
    assert len(queries) < 30


def test_filters_offer_queues_in_use_and_types_of_handlers_and_of_the_first_rows(browser: Client) -> None:
    enqueue("a", queue="only-in-the-table")
    offered = {spec.title: [choice["display"] for choice in spec.choices(cl)] for cl, spec in filters(browser, JOBS)}
    assert {"All", "only-in-the-table", "proletarian/default"} <= set(offered["queue"])
    assert {"tests/append", "a"} <= set(offered["job type"])
    archive(job_type=":b")
    offered = {spec.title: [choice["display"] for choice in spec.choices(cl)] for cl, spec in filters(browser, ARCHIVE)}
    assert {"tests/append", "b"} <= set(offered["job type"])


def filters(browser: Client, page: str, **query: str) -> list[tuple[Any, Any]]:
    cl = browser.get(page, query).context["cl"]
    return [(cl, spec) for spec in cl.filter_specs]


def test_dates_are_gone_down_to_from_years_that_have_jobs_to_hours(browser: Client) -> None:
    in_summer, last_year = archive(finished_at="2026-07-14T12:30+02"), archive(finished_at="2025-12-31T23:30+01")

    def offered(chosen: str = "") -> list[str]:
        [choices] = [
            [choice["display"] for choice in spec.choices(cl)]
            for cl, spec in filters(browser, ARCHIVE, finished_at=chosen)
            if spec.parameter_name == "finished_at"
        ]
        return choices

    assert offered() == ["Any date", "2025", "2026"]
    assert offered("2026") == ["Any date", "« 2026", "July 2026"]
    assert offered("2026-07") == ["Any date", "« 2026", "« July 2026", "July 14"]
    assert offered("2026-07-14") == ["Any date", "« 2026", "« July 2026", "« July 14", "12:00"]
    # In the viewer's time zone, in which an hour has passed already by UTC.
    assert listed(browser, ARCHIVE, finished_at="2025-12-31T23") == [last_year]
    assert listed(browser, ARCHIVE, finished_at="2026-07") == [in_summer]
    for nonsense in ("2026-13", "2026-02-30", "9999-12-31", "0000", "x"):
        assert listed(browser, ARCHIVE, finished_at=nonsense) == [], nonsense
    job_id = enqueue("a", process_at=None)
    execute("UPDATE proletarian.job SET process_at = '2026-10-25T02:30+01'")  # the second 02:30 of that day
    assert listed(browser, JOBS, process_at="2026-10-25") == [str(job_id)]


# -- Search ----------------------------------------------------------------------------------------------------------


def test_search_finds_a_job_by_its_id_whatever_else_is_chosen_in_other_filters(browser: Client) -> None:
    wanted, _ = archive(), archive()
    assert listed(browser, ARCHIVE, q=wanted) == [wanted]
    assert listed(browser, ARCHIVE, q=f" {wanted.upper()} ") == [wanted]
    assert listed(browser, ARCHIVE, q=wanted, status="failure", queue="other", finished_at="2020") == [wanted]


def test_search_finds_a_text_in_payloads_of_one_queue(browser: Client) -> None:
    anna, bert = enqueue("a", {"to": "Anna_1"}), enqueue("a", {"to": "100%"})
    enqueue("a", {"to": "Anna_1"}, queue="other")
    archived = archive(payload='["^ ","~:to","Anna"]')
    queue = "proletarian/default"
    assert listed(browser, JOBS, q="anna_", queue=queue) == [str(anna)]
    assert listed(browser, JOBS, q="%", queue=queue) == [str(bert)]
    assert listed(browser, JOBS, q="_", queue=queue, state="due") == [str(anna)]
    assert listed(browser, JOBS, q="anna", queue=queue, state="running") == []
    assert listed(browser, ARCHIVE, q="anna", queue=queue) == [archived]
    for page in (JOBS, ARCHIVE):
        assert listed(browser, page, q="anna") == []
        assert "Choose a queue first" in words(browser, page, q="anna")


# -- Bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [JOBS, ARCHIVE])
def test_lists_count_to_a_limit_and_say_so_and_load_no_payloads(
    browser: Client, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_COUNTED", 3)
    for number in range(3):
        archive(payload=f"[secret{number}]")
        enqueue("a", f"secret{number}")
    assert "3 jobs" in words(browser, page).replace("archived ", "")
    assert "more than" not in words(browser, page)
    archive()
    enqueue("a")
    with CaptureQueriesContext(connection) as queries:
        assert "more than 3" in words(browser, page)
    ours = [query["sql"] for query in queries if "job" in query["sql"]]
    assert ours
    for sql in ours:
        assert "payload" not in sql
        assert "DISTINCT" not in sql or "job_attempt" in sql or "LIMIT" in sql
        assert "COUNT" not in sql or "LIMIT 4" in sql


def test_what_no_index_serves_is_looked_for_among_so_many_rows_and_the_page_says_so(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_search, "MOST_LOOKED_AT", 2)
    found, _ = archive(finished_at="2026-01-03"), archive(finished_at="2026-01-02", job_type=":other")
    archive(finished_at="2026-01-01")
    assert listed(browser, ARCHIVE, job_type="shop/mail") == [found]
    said = words(browser, ARCHIVE, job_type="shop/mail")
    assert "The newest 2 were looked at, back to 2026-01-01 01:00:00. Choose a date to look further back." in said
    monkeypatch.setattr(job_search, "LEAST_LOOKED_AT", 2)
    jobs = [enqueue("a") for _ in range(3)]
    assert listed(browser, JOBS, job_type="a") == [str(job_id) for job_id in jobs[:2]]
    assert "2 jobs were looked at, those that run next in each queue." in words(browser, JOBS, job_type="a")


# -- Who may what ----------------------------------------------------------------------------------------------------


def test_nothing_can_be_added_changed_or_deleted(browser: Client) -> None:
    job_id = archive()
    assert browser.get(f"{ARCHIVE}add/").status_code == 403
    assert browser.post(f"{ARCHIVE}{job_id}/change/", {}).status_code == 403
    assert browser.post(f"{ARCHIVE}{job_id}/delete/", {"post": "yes"}).status_code == 403
    assert "delete_selected" not in browser.get(ARCHIVE).content.decode()


def test_a_person_without_the_right_sees_nothing(client: Client) -> None:
    clerk = User.objects.create_user("clerk", is_staff=True)
    client.force_login(clerk)
    job_id = archive()
    for page in (JOBS, ARCHIVE, ATTEMPTS, WORKERS, f"{ARCHIVE}{job_id}/change/"):
        assert client.get(page).status_code == 403, page
    clerk.user_permissions.add(Permission.objects.get(codename="view_archivedjob"))
    assert client.get(f"{ARCHIVE}{job_id}/change/").status_code == 200
    assert client.get(JOBS).status_code == 403
