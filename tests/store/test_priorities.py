"""Jobs of one queue by priority: enqueued, found by workers, claimed in order, and what that costs the server."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from psycopg.errors import FeatureNotSupported

from django_proletarian import (
    EnqueueError,
    NewJob,
    PlainName,
    conf,
    enqueue,
    enqueue_many,
    inserts,
    job_handler,
    store,
)
from django_proletarian.connection import COMMIT, ClaimConnection
from django_proletarian.levels import MOST_STEPS, Levels, find_levels_statement
from django_proletarian.store import ClaimBounds, archiving, claim_due_jobs, seconds_to_next_job
from django_proletarian.tables import Tables
from django_proletarian.worker import process_next_job
from tests.conftest import rows
from tests.store.test_plans import nodes

TABLES = Tables()
DEFAULT = "proletarian/default"
HOUR = timedelta(hours=1)


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def enqueue_levels(*levels: int, queue: str = "mail", **options: Any) -> None:
    for priority in levels:
        enqueue("tests/pass", priority, queue=queue, priority=priority, **options)


def look(claim: ClaimConnection, *queues: str, own: Iterable[str] = ()) -> tuple[str, ...]:
    """The queues to claim from, as a worker that has just started finds them."""
    levels = Levels(TABLES, queues or ["mail"], frozenset(own))
    levels.look(claim, None)
    return levels.queues


# -- Enqueue ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "priority", "stored"),
    [
        pytest.param(None, 10, ":proletarian/default+10", id="high"),
        pytest.param("mail", -5, ":mail-5", id="low"),
        pytest.param("mail", 0, ":mail", id="none"),
        pytest.param(PlainName("mail"), 5, "mail+5", id="a plain name"),
    ],
)
def test_a_priority_is_part_of_the_stored_queue(committed: None, queue: str | None, priority: int, stored: str) -> None:
    enqueue("tests/pass", queue=queue, priority=priority)
    enqueue_many([NewJob("tests/pass", queue=queue, priority=priority)])
    assert [row["queue"] for row in rows("proletarian.job")] == [stored, stored]


def test_a_handlers_queue_has_priorities_too(committed: None) -> None:
    handler = job_handler("tests/mail", queue="mail")(lambda payload: None)
    handler.enqueue(priority=7)
    assert [row["queue"] for row in rows("proletarian.job")] == [":mail+7"]


@pytest.mark.django_db
@pytest.mark.parametrize("priority", [101, 1.5, True, "high", None, []])
def test_a_priority_that_can_not_be_is_refused_before_any_sql(django_assert_num_queries: Any, priority: Any) -> None:
    with django_assert_num_queries(0):
        for enqueued in (
            lambda: enqueue("tests/pass", priority=priority),
            lambda: enqueue_many([NewJob("tests/pass", priority=priority)]),
        ):
            with pytest.raises(EnqueueError, match="priority must be a whole number from -100 to 100, not"):
                enqueued()


def test_all_priorities_wake_the_workers_of_the_queue() -> None:
    keys = {inserts.sleepers_key(TABLES, stored) for stored in (":mail", ":mail+10", ":mail-100")}
    assert len(keys) == 1
    assert inserts.sleepers_key(TABLES, ":other") not in keys


# -- Which levels there are ------------------------------------------------------------------------------------------


def test_a_worker_finds_the_levels_that_have_due_jobs_in_order(claim: ClaimConnection) -> None:
    enqueue_levels(-100, 9, 10, 100, -9)
    assert look(claim) == ("mail+100", "mail+10", "mail+9", "mail", "mail-9", "mail-100")


def test_several_queues_are_drained_one_after_another_each_by_priority(claim: ClaimConnection) -> None:
    enqueue_levels(1, -1, queue="low")
    enqueue_levels(2, -2, queue="high")
    assert look(claim, "high", "low") == ("high+2", "high", "high-2", "low+1", "low", "low-1")


def test_levels_whose_jobs_are_all_later_are_not_tried(claim: ClaimConnection) -> None:
    enqueue_levels(10, process_in=HOUR)
    enqueue_levels(5)
    assert look(claim) == ("mail+5", "mail")


@pytest.mark.parametrize("stranger", ["mail+a", "mail-box", "mailing+5", "Mail+5", "mail+101", "mail+05", "mai"])
def test_other_queues_are_no_levels(claim: ClaimConnection, stranger: str) -> None:
    enqueue("tests/pass", queue=stranger)
    assert look(claim) == ("mail",)


def test_a_plain_queue_and_a_keyword_of_the_same_text_have_levels_apart(claim: ClaimConnection) -> None:
    enqueue("tests/pass", queue=PlainName("mail"), priority=3)
    enqueue("tests/pass", queue="mail", priority=4)
    assert look(claim) == ("mail+4", "mail")
    [level, queue] = look(claim, PlainName("mail"))
    assert (level, queue) == ("mail+3", "mail")
    assert isinstance(level, PlainName)


def test_a_queue_that_only_looks_like_a_level_is_left_alone(claim: ClaimConnection) -> None:
    enqueue("tests/pass", queue="mail-2")
    enqueue("tests/pass", queue="mail-3")
    assert look(claim, own=["mail-2"]) == ("mail", "mail-3")
    assert look(claim, "mail-3", "mail") == ("mail-3", "mail", "mail-2")


def test_queues_that_the_settings_and_the_handlers_name_are_no_levels(settings: Any) -> None:
    settings.PROLETARIAN = {"QUEUE": "eu-west-1", "QUEUES": ["eu-west", "eu-west-2"]}
    job_handler("tests/mail", queue="eu-west-3")(lambda payload: None)
    assert {"eu-west-1", "eu-west-2", "eu-west-3"} <= conf.own_queues()


@pytest.mark.parametrize("others", [MOST_STEPS - 2, MOST_STEPS + 50])
def test_levels_are_found_among_any_number_of_queues_with_names_like_theirs(
    claim: ClaimConnection, others: int
) -> None:
    enqueue_many(NewJob("tests/pass", queue=f"mail-{number}x") for number in range(others))
    enqueue_levels(-99, -1, 50)
    assert look(claim) == ("mail+50", "mail", "mail-1", "mail-99")
    assert seconds_to_next_job(claim, TABLES, Levels(TABLES, ["mail"]), None) == 0


def test_a_level_is_tried_for_a_while_after_its_last_job(claim: ClaimConnection) -> None:
    enqueue_levels(10)
    levels = Levels(TABLES, ["mail"])
    assert levels.look(claim, None) is True
    execute("DELETE FROM proletarian.job")
    assert levels.look(claim, None) is False
    assert levels.queues == ("mail+10", "mail")


def test_of_several_threads_one_looks(claim: ClaimConnection) -> None:
    levels = Levels(TABLES, ["mail"])
    assert levels.are_unknown
    assert levels.look_if_due(claim, None) is True
    assert levels.look_if_due(claim, None) is False
    assert not levels.are_unknown


COLLATIONS = """
SELECT collname FROM pg_collation
 WHERE collencoding IN (-1, pg_char_to_encoding('UTF8')) AND collisdeterministic
   AND collnamespace = 'pg_catalog'::regnamespace
"""
OUTSIDE = """
SELECT sign, number FROM unnest('{{+,-}}'::text[]) AS sign, generate_series(1, 100) AS number
 WHERE ('mail' || sign || number) COLLATE "{0}" <= 'mail' || sign
    OR ('mail' || sign || number) COLLATE "{0}" >= 'mail' || sign || 'a'
"""


def test_levels_lie_between_sign_and_letter_in_every_collation_of_the_server(claim: ClaimConnection) -> None:
    collations = [name for (name,) in claim.send(COLLATIONS)]
    assert "C" in collations
    for collation in collations:
        with suppress(FeatureNotSupported):  # a server that was built without ICU lists one of its collations
            assert claim.send(OUTSIDE.format(collation)) == [], collation


# -- Claims ----------------------------------------------------------------------------------------------------------


def test_the_highest_priority_is_claimed_first_and_the_oldest_of_it(claim: ClaimConnection) -> None:
    enqueue_levels(0, -5, 10, 0, 10, -5)
    queues = look(claim)
    claimed = []
    bounds = ClaimBounds()
    while jobs := claim_due_jobs(claim, TABLES, queues, bounds=bounds):
        claimed += [(job.queue, job.payload) for job in jobs]
        claim.send(archiving(claim, TABLES, [job.job_id for job in jobs], "success", None), COMMIT)
    assert [queue for queue, _ in claimed] == ["mail+10"] * 2 + ["mail"] * 2 + ["mail-5"] * 2
    order = {row["job_id"]: row["process_at"] for row in rows("proletarian.archived_job")}
    assert len(order) == 6


def test_one_statement_claims_from_all_levels_and_locks_one_row_only(claim: ClaimConnection) -> None:
    enqueue_levels(10, 10, 5, 0, -5)
    sent: list[str] = []
    send = claim.send
    queues = look(claim)
    claim.send = lambda *statements: sent.append("; ".join(statements)) or send(*statements)  # type: ignore[method-assign,func-returns-value]
    [job] = claim_due_jobs(claim, TABLES, queues)
    del claim.send  # type: ignore[method-assign]
    assert job.queue == "mail+10"
    assert [message for message in sent if "EXECUTE" in message] == sent[-1:]
    assert len(rows("(SELECT job_id FROM proletarian.job FOR UPDATE SKIP LOCKED) AS unlocked")) == 4


def test_a_claim_of_the_lowest_level_locks_nothing_above(claim: ClaimConnection) -> None:
    enqueue_levels(10, process_in=HOUR)
    enqueue_levels(-5, -5)
    [job] = claim_due_jobs(claim, TABLES, ["mail+10", "mail", "mail-5"])
    assert job.queue == "mail-5"
    assert len(rows("(SELECT job_id FROM proletarian.job FOR UPDATE SKIP LOCKED) AS unlocked")) == 2


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
def test_a_batch_goes_on_with_the_next_level_and_locks_no_more_than_it_takes(
    claim: ClaimConnection, limit: int
) -> None:
    enqueue_levels(0, 10, -5, 10, 0)
    jobs = claim_due_jobs(claim, TABLES, ["mail+10", "mail", "mail-5"], limit=limit)
    expected = ["mail+10", "mail+10", "mail", "mail", "mail-5"][:limit]
    assert [job.queue for job in jobs] == expected
    unlocked = rows("(SELECT job_id FROM proletarian.job FOR UPDATE SKIP LOCKED) AS unlocked")
    assert len(unlocked) == 5 - len(expected)


def test_rows_of_a_level_that_others_have_locked_are_passed_over(claim: ClaimConnection) -> None:
    enqueue_levels(10, 0)
    with ClaimConnection("default", "other") as other:
        [first] = claim_due_jobs(other, TABLES, ["mail+10", "mail"])
        [second] = claim_due_jobs(claim, TABLES, ["mail+10", "mail"])
    assert (first.queue, second.queue) == ("mail+10", "mail")


def test_a_level_bounded_by_its_last_claim_hides_nothing_that_came_late(claim: ClaimConnection) -> None:
    bounds = ClaimBounds(1e9)
    queues = ("mail+10", "mail")
    for priority in (10, 0):
        enqueue_levels(priority)
        [job] = claim_due_jobs(claim, TABLES, queues, bounds=bounds)
        claim.send(archiving(claim, TABLES, [job.job_id], "success", None), COMMIT)
    enqueue_levels(10, 0)
    execute("UPDATE proletarian.job SET process_at = now() - interval '1 hour'")
    claimed = []
    while jobs := claim_due_jobs(claim, TABLES, queues, bounds=bounds):
        claimed += [job.queue for job in jobs]
        claim.send(archiving(claim, TABLES, [job.job_id for job in jobs], "success", None), COMMIT)
    assert claimed == ["mail+10", "mail"]


def test_a_worker_processes_a_level_that_came_after_it_looked(claim: ClaimConnection) -> None:
    ran: list[object] = []
    job_handler("tests/note")(ran.append)
    options = conf.worker_options(database="default", queues=["mail"])
    for payload, priority in [("usual", 0), ("low", -7), ("high", 7)]:
        enqueue("tests/note", payload, queue="mail", priority=priority)
    while process_next_job(options, claim, "mail"):
        pass
    assert ran == ["high", "usual", "low"]
    assert rows("proletarian.job") == []
    archived = {row["queue"] for row in rows("proletarian.archived_job")}
    assert archived == {":mail+7", ":mail", ":mail-7"}


# -- Sleep -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [10, 0, -10])
def test_a_worker_sleeps_until_a_job_of_any_priority_is_due(claim: ClaimConnection, priority: int) -> None:
    levels = Levels(TABLES, ["mail"], ["mail-2"])
    enqueue_levels(priority, process_in=HOUR)
    enqueue("tests/pass", queue="mail-2")
    assert 3500 < (seconds_to_next_job(claim, TABLES, levels, None) or 0) <= 3600
    enqueue_levels(priority)
    assert seconds_to_next_job(claim, TABLES, levels, None) == 0


# -- Plans -----------------------------------------------------------------------------------------------------------

MANY = """
INSERT INTO proletarian.job
SELECT gen_random_uuid(), ':mail' || CASE number % 4 WHEN 0 THEN '' WHEN 1 THEN '+10' WHEN 2 THEN '-5' ELSE '+7' END,
       ':tests/pass', '1', 0, now(), now() - interval '1 day' + number * interval '1 microsecond'
  FROM generate_series(1, {rows}) AS number
"""


@pytest.mark.parametrize("many", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_look_at_the_levels_of_many_rows_reads_a_handful(claim: ClaimConnection, many: int) -> None:
    execute(MANY.format(rows=many))
    execute("ANALYZE proletarian.job")
    calls = {
        "look": claim.call(find_levels_statement(TABLES), [":mail"], [], None),
        "next due": claim.call(store.next_due_statement(TABLES), [":mail"], None, []),
        "claim": claim.call(
            store.claim_of_queues_statement(TABLES, 1), [":mail+10", ":mail"], None, "{NULL,1577836800}"
        ),
        "batch": claim.call(
            store.claim_of_queues_statement(TABLES, 100), [":mail+10", ":mail"], None, "{NULL,1577836800}"
        ),
    }
    for name, call in calls.items():
        claim.send(claim.begin())
        plan = nodes(claim, call, analyze=True)
        [(text,)] = claim.send(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}")
        claim.send("ROLLBACK")
        kinds = {node["Node Type"] for node in plan}
        assert "Seq Scan" not in kinds, name
        # The order of a claim is the loop's: a sort would lock the first job of every queue.
        assert not (name in ("claim", "batch") and kinds & {"Sort", "Incremental Sort"}), name
        scans = [node for node in plan if node.get("Relation Name") == "job"]
        assert {node.get("Index Name") for node in scans} == {"job_queue_process_at"}, name
        rows_read = sum(node["Actual Rows"] * node["Actual Loops"] for node in scans)
        assert rows_read <= (100 if name == "batch" else 12), name
        buffers = json.loads(text)[0]["Plan"]
        assert buffers["Shared Hit Blocks"] + buffers["Shared Read Blocks"] < (600 if name == "batch" else 150), name
