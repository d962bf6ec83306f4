"""What people may do to jobs in the admin: who may, what they are asked, what becomes of the jobs, what is logged."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from django_proletarian import NewJob, conf, enqueue, enqueue_many, job_actions
from django_proletarian.admin import actions
from django_proletarian.connection import ClaimConnection
from django_proletarian.inserts import sleepers_key
from django_proletarian.job_actions import Left, RunAgain
from django_proletarian.models import ArchivedJob, Job, JobAttempt
from django_proletarian.store import claim_due_jobs
from django_proletarian.tables import Tables
from tests.face.test_admin import ARCHIVE, ATTEMPTS, JOBS, archive, attempt, execute, insert_worker, words

pytestmark = pytest.mark.django_db
LATER = timedelta(hours=1)


def act(browser: Client, page: str, action: str, *job_ids: object, query: str = "", **filled_in: object) -> list[str]:
    """Do it and confirm it; return what the list says then."""
    data = {"action": action, "_selected_action": [str(job_id) for job_id in job_ids], "select_across": "0"}
    asked = browser.post(page + query, {**data, "index": "0", **filled_in})
    assert asked.status_code == 200, "it asks first"
    answer = browser.post(page + query, {**data, "post": "Yes", **filled_in}, follow=True)
    assert answer.redirect_chain, re.sub(r"<[^>]*>", " ", answer.content.decode())
    return [str(message) for message in answer.context["messages"]]


def in_queue() -> list[UUID]:
    return list(Job.objects.values_list("pk", flat=True))


# -- Jobs in the queue -----------------------------------------------------------------------------------------------


def test_run_now_makes_a_job_due_and_leaves_one_that_is_due_where_it_stands(browser: Client) -> None:
    due, later, untouched = enqueue("a"), enqueue("a", process_in=LATER), enqueue("a", process_in=LATER)
    before = Job.objects.get(pk=due).process_at
    assert act(browser, JOBS, "run_now", due, later) == ["2 jobs are due now."]
    assert set(Job.objects.due().values_list("pk", flat=True)) == {due, later}
    assert Job.objects.get(pk=due).process_at == before
    assert Job.objects.get(pk=untouched).process_at > datetime.now(UTC)


def test_reschedule_asks_for_a_date_in_the_viewers_time_zone(browser: Client) -> None:
    job_id = enqueue("a")
    assert act(browser, JOBS, "reschedule", job_id, process_at="2070-07-14T12:30") == ["1 job was rescheduled."]
    assert Job.objects.get(pk=job_id).process_at == datetime(2070, 7, 14, 10, 30, tzinfo=UTC)
    # An hour that is skipped is no date, and one that has passed means now.
    page = browser.post(
        JOBS, {"action": "reschedule", "_selected_action": str(job_id), "post": "Yes", "process_at": "2026-03-29T02:30"}
    )
    assert "be interpreted in time zone Europe/Oslo" in page.content.decode()
    act(browser, JOBS, "reschedule", job_id, process_at="2020-01-01T00:00")
    assert Job.objects.due().get(pk=job_id).process_at > datetime.now(UTC) - LATER


@pytest.mark.parametrize(
    ("filled_in", "queues"),
    [
        ({"queue": "other"}, ["other", "other+5"]),  # each keeps its priority
        ({"queue": "other", "priority": "0"}, ["other", "other"]),
        ({"queue": ":other", "priority": "-7"}, ["other-7", "other-7"]),
        ({"queue": "other+10"}, ["other+10", "other+10"]),
        ({"queue": '"a queue"'}, ["a queue", "a queue+5"]),
    ],
)
def test_move_puts_jobs_into_another_queue(browser: Client, filled_in: dict[str, str], queues: list[str]) -> None:
    jobs = [enqueue("a"), enqueue("a", priority=5)]
    assert act(browser, JOBS, "move", *jobs, **filled_in) == ["2 jobs were moved."]
    assert [Job.objects.get(pk=job_id).queue for job_id in jobs] == queues


def test_move_refuses_what_is_no_queue(browser: Client) -> None:
    job_id = enqueue("a")
    for filled_in, reason in [
        ({"queue": ""}, "This field is required."),
        ({"queue": ":"}, "This is no name."),
        ({"queue": "a", "priority": "101"}, "less than or equal to 100"),
        ({"queue": "a+10", "priority": "20"}, "The name of the queue has another one."),
    ]:
        data = {"action": "move", "_selected_action": str(job_id), "post": "Yes", **filled_in}
        assert reason in browser.post(JOBS, data).content.decode(), filled_in
    assert Job.objects.get(pk=job_id).queue == "proletarian/default"


def test_cancel_archives_a_job_as_a_failure_and_says_who_did_it(browser: Client) -> None:
    job_id = enqueue("shop/mail", {"to": "a@b.c"}, process_in=LATER)
    before = Job.objects.get(pk=job_id)
    assert act(browser, JOBS, "cancel", job_id) == ["1 job was cancelled."]
    assert in_queue() == []
    archived = ArchivedJob.objects.get(pk=job_id)
    assert (archived.status, archived.attempts, archived.payload_text) == ("failure", 0, before.payload_text)
    assert (archived.enqueued_at, archived.process_at) == (before.enqueued_at, before.process_at)
    record = JobAttempt.objects.get(job_id=job_id)
    assert (record.outcome, record.message, record.worker_id) == ("cancelled", "Cancelled by boss.", None)
    assert "Cancelled by boss." in words(browser, ARCHIVE)
    assert "cancelled Cancelled by boss." in words(browser, ATTEMPTS)


def test_cancel_replaces_an_archived_job_of_the_same_id(browser: Client) -> None:
    job_id = UUID(archive())
    enqueue("new", job_id=job_id)
    assert act(browser, JOBS, "cancel", job_id) == ["1 job was cancelled."]
    archived = ArchivedJob.objects.get(pk=job_id)
    assert (archived.job_type, archived.status) == ("new", "failure")


@pytest.mark.parametrize("is_leased", [False, True])
@pytest.mark.parametrize("action", ["run_now", "reschedule", "move", "cancel"])
def test_a_job_that_a_worker_says_it_runs_is_left_alone(browser: Client, action: str, is_leased: bool) -> None:
    running, other = enqueue("a"), enqueue("a")
    if is_leased:  # which counts its attempt when it begins
        execute("UPDATE proletarian.job SET attempts = 1, process_at = now() + interval '1 minute'")
    told = {"job_id": str(running), "job_type": "a", "queue": "q", "attempt": 1, "seconds": 1.0, "leased": is_leased}
    insert_worker("shop-1", running=[told])
    gone = uuid4()
    before = Job.objects.get(pk=running)
    filled_in = {"process_at": "2070-01-01T00:00", "queue": "other"}
    done, *left = act(browser, JOBS, action, running, other, gone, **filled_in)
    assert done.startswith("1 job ")
    # A job that is gone is not among those found.
    assert left == [f"1 job runs now and was left alone: {running}"]
    after = Job.objects.get(pk=running)
    assert (after.queue, after.process_at) == (before.queue, before.process_at)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "action",
    [
        job_actions.RunNow(),
        job_actions.Reschedule(datetime(2070, 1, 1, tzinfo=UTC)),
        job_actions.Move("other"),
        job_actions.Cancel("by me"),
    ],
    ids=lambda action: type(action).__name__,
)
def test_a_locked_job_is_never_waited_for(action: job_actions.Action, claim: ClaimConnection) -> None:
    enqueue_many([NewJob("a"), NewJob("a")])
    [locked] = claim_due_jobs(claim, Tables(), ["proletarian/default"])
    execute("SET statement_timeout = '2s'")
    ids = [*in_queue(), uuid4()]
    report = perform(action, ids)
    assert [job.job_id for job in report.done] == [job_id for job_id in ids[:2] if str(job_id) != locked.job_id]
    assert report.left == {UUID(locked.job_id): Left.RUNNING, ids[-1]: Left.GONE}


def perform(action: job_actions.Action, job_ids: list[UUID]) -> job_actions.Report:
    return job_actions.perform("default", Tables(), action, job_ids, lambda done: None)


@pytest.mark.django_db(transaction=True)
def test_what_becomes_due_wakes_the_workers_that_sleep() -> None:
    job_id = enqueue("a", process_in=LATER, priority=5)
    key = sleepers_key(Tables(), ":proletarian/default")
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as worker:
        worker.execute(f"LISTEN proletarian; SELECT pg_advisory_lock({key})")
        perform(job_actions.RunNow(), [job_id])
        assert [told.payload for told in worker.notifies(timeout=5, stop_after=1)] == [str(key)]


# -- Archived jobs ---------------------------------------------------------------------------------------------------


def test_run_again_moves_a_job_back_to_its_queue_with_its_id_and_no_attempts(browser: Client) -> None:
    job_id = archive("failure", payload='["^ ","~:a",1]', queue=":billing+10")
    attempt(job_id)
    archived = ArchivedJob.objects.get(pk=job_id)
    assert act(browser, ARCHIVE, "run_again", job_id) == ["1 job is back in the queue."]
    job = Job.objects.due().get(pk=job_id)
    assert (job.queue, job.job_type, job.attempts, job.payload_text) == ("billing+10", "shop/mail", 0, '["^ ","~:a",1]')
    assert job.enqueued_at == archived.enqueued_at
    assert not ArchivedJob.objects.exists()
    assert JobAttempt.objects.filter(job_id=job_id).exists()


def test_run_copy_enqueues_a_new_job_and_keeps_the_old(browser: Client) -> None:
    job_id = archive("success", payload="[7]", queue=":billing")
    assert act(browser, ARCHIVE, "run_copy", job_id) == ["1 copy is in the queue."]
    copy = Job.objects.due().get()
    assert str(copy.pk) != job_id
    assert (copy.queue, copy.job_type, copy.attempts, copy.payload_text) == ("billing", "shop/mail", 0, "[7]")
    assert ArchivedJob.objects.filter(pk=job_id).exists()
    assert str(copy.pk) in LogEntry.objects.get().change_message


def test_a_job_that_is_in_the_queue_is_not_run_again_from_the_archive(browser: Client) -> None:
    job_id = UUID(archive())
    enqueue("new", job_id=job_id)
    assert act(browser, ARCHIVE, "run_again", job_id) == [
        f"1 job is in the queue already, and was left alone: {job_id}"
    ]
    assert Job.objects.get(pk=job_id).job_type == "new"
    assert ArchivedJob.objects.filter(pk=job_id).exists()


def test_all_that_a_filter_finds_run_again_in_batches_and_one_bad_row_keeps_no_other(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_actions, "BATCH", 20)
    execute(
        "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), ':q', ':a', number::text, 3, now(), now(), "
        "CASE WHEN number <= 100 THEN ':failure' ELSE ':success' END, now() FROM generate_series(1, 130) AS number"
    )
    execute("ALTER TABLE proletarian.job ADD CONSTRAINT unlucky CHECK (payload <> '13')")
    bad = ArchivedJob.objects.get(payload_text="13").pk
    shown = browser.get(f"{ARCHIVE}?status=failure").context["cl"]
    assert shown.result_count == 100
    one = [shown.result_list[0].pk]
    page = browser.post(
        f"{ARCHIVE}?status=failure",
        {"action": "run_again", "_selected_action": one, "select_across": "1", "index": "0"},
    ).content.decode()
    assert "100 jobs" in page
    assert "and 80 more" in page
    said = act(browser, ARCHIVE, "run_again", *one, query="?status=failure", select_across="1")
    assert said[0] == "99 jobs are back in their queues."
    assert said[1].startswith(f"1 job was left as it was ({bad}), since the database refused: ")
    assert "unlucky" in said[1]
    assert Job.objects.filter(attempts=0).count() == 99
    assert list(ArchivedJob.objects.filter(status="failure").values_list("pk", flat=True)) == [bad]
    assert LogEntry.objects.count() == 99
    assert not LogEntry.objects.filter(object_id=bad).exists()


def test_no_more_than_a_limit_is_done_at_a_time_and_the_page_says_so(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "MOST_ACTED_ON", 2)
    jobs = [archive("failure", finished_at=f"2026-01-0{day}") for day in (3, 2, 1)]
    data = {"action": "run_again", "_selected_action": jobs[:1], "select_across": "1"}
    assert "It is done to the first 2" in words_of(browser.post(ARCHIVE, data))
    assert act(browser, ARCHIVE, "run_again", jobs[0], select_across="1") == ["2 jobs are back in their queues."]
    assert {str(job_id) for job_id in in_queue()} == set(jobs[:2])


def words_of(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", response.content.decode()).split())


def test_a_role_that_may_not_is_told_so_once(browser: Client) -> None:
    jobs = [archive("failure") for _ in range(3)]
    limited = f"looks_only_{uuid4().hex[:8]}"
    execute(f"CREATE ROLE {limited}")
    execute(f"GRANT USAGE ON SCHEMA proletarian, public TO {limited}")
    execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA proletarian TO {limited}")
    execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {limited}")
    execute(f"SET LOCAL ROLE {limited}")
    try:
        [said] = act(browser, ARCHIVE, "run_again", *jobs)
    finally:
        execute("RESET ROLE")
    assert said == "The database refused, so no more was done: permission denied for table job"
    assert ArchivedJob.objects.count() == 3


# -- Who may, and what is written down -------------------------------------------------------------------------------


@pytest.fixture
def clerk(client: Client) -> Callable[..., Client]:
    """Somebody with these permissions."""

    def clerk(*permissions: str) -> Client:
        user = User.objects.create_user("clerk", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client.force_login(user)
        return client

    return clerk


@pytest.mark.parametrize(
    ("page", "permission", "action"),
    [
        (JOBS, "run_job", "run_now"),
        (JOBS, "reschedule_job", "reschedule"),
        (JOBS, "move_job", "move"),
        (JOBS, "cancel_job", "cancel"),
        (ARCHIVE, "rerun_archivedjob", "run_again"),
        (ARCHIVE, "copy_archivedjob", "run_copy"),
    ],
)
def test_each_action_takes_a_permission_of_its_own(
    clerk: Callable[..., Client], page: str, permission: str, action: str
) -> None:
    job_id = str(enqueue("a", process_in=LATER)) if page == JOBS else archive()
    client = clerk("view_job", "view_archivedjob", permission)
    for shown in (client.get(page), client.get(f"{page}{job_id}/change/")):
        offered = re.findall(r'(?:<option|name="action") value="(\w+)"', shown.content.decode())
        assert offered == [action]
    said = act(client, page, action, job_id, process_at="2070-01-01T00:00", queue="other")
    assert said[0].startswith("1 ")
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_id, entry.object_repr.split()[1]) == ("clerk", job_id, job_id)
    for other in {"run_now", "cancel", "run_again", "run_copy"} - {action}:
        data = {"action": other, "_selected_action": job_id, "post": "Yes"}
        assert "No action selected." in words_of(client.post(page, data, follow=True))


def test_a_viewer_is_offered_nothing(clerk: Callable[..., Client]) -> None:
    job_id = enqueue("a", process_in=LATER)
    client = clerk("view_job")
    assert "action-select" not in client.get(JOBS).content.decode()
    assert "proletarian-act" not in client.get(f"{JOBS}{job_id}/change/").content.decode()
    client.post(JOBS, {"action": "run_now", "_selected_action": job_id, "post": "Yes"})
    assert not Job.objects.due().exists()


def test_nothing_happens_before_it_is_confirmed_and_names_are_escaped(browser: Client) -> None:
    enqueue("<b>type</b>", queue="<i>queue</i>", process_in=LATER)
    job_id = in_queue()[0]
    page = browser.post(JOBS, {"action": "cancel", "_selected_action": job_id, "index": "0"}).content.decode()
    assert in_queue() == [job_id]
    assert "&lt;b&gt;type" in page
    assert "<b>type" not in page
    page = browser.post(JOBS, {"action": "move", "_selected_action": job_id, "index": "0"}).content.decode()
    assert '<option value="&lt;i&gt;queue&lt;/i&gt;">' in page


def test_recording_of_attempts_can_be_off(settings: Any, browser: Client) -> None:
    settings.PROLETARIAN = {"RECORD_ATTEMPTS": "none"}
    assert conf.settings().record_attempts == "none"
    act(browser, JOBS, "cancel", enqueue("a"))
    assert not JobAttempt.objects.exists()
    assert ArchivedJob.objects.count() == 1


def test_actions_work_without_the_tables_of_ours(browser: Client) -> None:
    execute("DROP TABLE proletarian.job_attempt, proletarian.worker")
    job_id = enqueue("a")
    assert act(browser, JOBS, "cancel", job_id) == ["1 job was cancelled."]
    assert perform(RunAgain(), [job_id]).done
