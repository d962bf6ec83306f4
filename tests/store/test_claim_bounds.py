"""Claims that begin where the last one ended: what they spare, and that they overlook nothing.

FOR_EVER is the longest time between two claims from the beginning, so that no clock makes one; AT_ONCE makes each one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection, transaction

from django_proletarian import enqueue, enqueue_many
from django_proletarian.connection import COMMIT, ClaimConnection
from django_proletarian.store import ClaimBounds, ClaimedJob, archiving, claim_due_jobs, claim_statement, retry_job
from django_proletarian.tables import Tables
from tests.conftest import eventually, rows
from tests.live.processes import insert_jobs, sql, url_of

TABLES = Tables()
DEFAULT = "proletarian/default"
FOR_EVER = 1e9  # seconds
AT_ONCE = 0.0
HOUR = timedelta(hours=1)


def next_jobs(
    claim: ClaimConnection,
    bounds: ClaimBounds,
    *,
    queues: tuple[str, ...] = (DEFAULT,),
    now: datetime | None = None,
    limit: int = 1,
) -> list[ClaimedJob]:
    """Claim jobs and archive them; return them."""
    jobs = claim_due_jobs(claim, TABLES, queues, now, limit=limit, bounds=bounds)
    if jobs:
        claim.send(archiving(claim, TABLES, [job.job_id for job in jobs], "success", now), COMMIT)
    return jobs


def next_id(claim: ClaimConnection, bounds: ClaimBounds, **options: Any) -> UUID | None:
    jobs = next_jobs(claim, bounds, **options)
    return UUID(jobs[0].job_id) if jobs else None


def enqueue_in_order(count: int, **options: Any) -> list[UUID]:
    """Enqueue jobs due one after another."""
    return [enqueue("tests/pass", number, **options) for number in range(count)]


# -- Which claims are made -------------------------------------------------------------------------------------------


def test_the_first_claim_of_a_queue_is_from_the_beginning() -> None:
    assert list(ClaimBounds(FOR_EVER).rounds(["a"])) == [[("a", None)]]


def test_a_bounded_claim_that_finds_nothing_is_followed_by_one_from_the_beginning() -> None:
    bounds = ClaimBounds(FOR_EVER)
    list(bounds.rounds(["a"]))
    bounds.claimed("a", 12.5)
    assert list(bounds.rounds(["a"])) == [[("a", 12.5)], [("a", None)]]
    assert list(bounds.rounds(["a"])) == [[("a", 12.5)], [("a", None)]]


def test_a_claim_is_from_the_beginning_when_the_last_such_is_long_ago() -> None:
    bounds = ClaimBounds(AT_ONCE)
    list(bounds.rounds(["a"]))
    bounds.claimed("a", 12.5)
    assert list(bounds.rounds(["a"])) == [[("a", None)]]


def test_each_queue_has_a_bound_of_its_own_and_all_are_tried_within_theirs_first() -> None:
    bounds = ClaimBounds(FOR_EVER)
    for queue, process_at in [("a", 1.0), ("b", 2.0)]:
        list(bounds.rounds([queue]))
        bounds.claimed(queue, process_at)
    assert list(bounds.rounds(["a", "b", "c"])) == [
        [("a", 1.0), ("b", 2.0), ("c", None)],
        [("a", None), ("b", None)],
    ]


# -- Nothing is overlooked -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "place"),
    [pytest.param(AT_ONCE, 0, id="from the beginning at once"), pytest.param(FOR_EVER, 5, id="when nothing else is")],
)
def test_a_job_committed_late_is_found_by_the_next_claim_from_the_beginning(
    claim: ClaimConnection, seconds: float, place: int
) -> None:
    bounds = ClaimBounds(seconds)
    with transaction.atomic():
        late = enqueue("tests/late")
        insert_jobs(url_of(), "tests/pass", ["1", "2", "3", "4", "5"])
        drained = [next_id(claim, bounds) for _ in range(5)]
        assert late not in drained
        assert next_id(claim, bounds) is None
        insert_jobs(url_of(), "tests/pass", ["6"])
        assert next_id(claim, bounds) is not None
        newer = enqueue_elsewhere(5)
    assert [next_id(claim, bounds) for _ in range(6)] == [*newer[:place], late, *newer[place:]]
    assert rows("proletarian.job") == []


def enqueue_elsewhere(count: int) -> list[UUID]:
    """Insert due jobs in another transaction than this thread's; their ids in the order in which they are due."""
    insert_jobs(url_of(), "tests/newer", [str(number) for number in range(count)])
    sql(
        url_of(),
        "UPDATE proletarian.job SET process_at = process_at + payload::int * interval '1 microsecond' "
        "WHERE job_type = ':tests/newer'",
    )
    found = sql(url_of(), "SELECT job_id FROM proletarian.job WHERE job_type = ':tests/newer' ORDER BY process_at")
    return [job_id for (job_id,) in found]


def test_a_retry_without_a_delay_is_found_at_once(claim: ClaimConnection) -> None:
    bounds = ClaimBounds(FOR_EVER)
    ids = enqueue_in_order(3)
    [job] = claim_due_jobs(claim, TABLES, [DEFAULT], bounds=bounds)
    retry_job(claim, TABLES, job.job_id, timedelta(0), None)
    claim.send(COMMIT)
    assert [next_id(claim, bounds) for _ in range(4)] == [ids[1], ids[2], ids[0], None]


def test_jobs_that_a_lost_worker_had_are_found(claim: ClaimConnection) -> None:
    bounds = ClaimBounds(FOR_EVER)
    ids = enqueue_in_order(6)
    other = ClaimConnection("default", "other")
    taken = claim_due_jobs(other, TABLES, [DEFAULT], limit=2)
    assert [UUID(job.job_id) for job in taken] == ids[:2]
    assert [next_id(claim, bounds) for _ in range(3)] == ids[2:5]

    other.close()

    # The rest of what is newer, then those.
    assert next_id(claim, bounds) == ids[5]
    assert eventually(lambda: next_id(claim, bounds)) == ids[0]
    assert eventually(lambda: next_id(claim, bounds)) == ids[1]


def test_a_job_made_due_earlier_by_hand_is_found(claim: ClaimConnection) -> None:
    bounds = ClaimBounds(FOR_EVER)
    ids = enqueue_in_order(2)
    later = enqueue("tests/pass", process_in=HOUR)
    assert [next_id(claim, bounds) for _ in range(2)] == ids
    sql(url_of(), "UPDATE proletarian.job SET process_at = now() - interval '1 day'")
    assert next_id(claim, bounds) == later


def test_the_rest_of_a_batch_is_found_by_the_next_claim_in_order(claim: ClaimConnection) -> None:
    bounds = ClaimBounds(FOR_EVER)
    ids = enqueue_in_order(10)
    found = []
    while jobs := claim_due_jobs(claim, TABLES, [DEFAULT], limit=4, bounds=bounds):
        # As a worker does whose batch has taken long enough.
        claim.send(archiving(claim, TABLES, [job.job_id for job in jobs[:3]], "success", None), COMMIT)
        found += [UUID(job.job_id) for job in jobs[:3]]
    assert found == ids


def test_a_clock_that_steps_back_hides_nothing_that_is_due(claim: ClaimConnection) -> None:
    bounds = ClaimBounds(FOR_EVER)
    now = datetime.now(UTC) + 10 * HOUR
    early = enqueue("tests/pass", process_at=now - 2 * HOUR)
    late = enqueue("tests/pass", process_at=now)
    latest = enqueue("tests/pass", process_at=now + HOUR)
    assert next_id(claim, bounds, now=now + HOUR) == early
    assert next_id(claim, bounds, now=now + HOUR) == late
    earlier = [enqueue("tests/pass", process_at=now - (3 - number) * HOUR) for number in range(3)]

    # The bound is now later than the clock.
    assert [next_id(claim, bounds, now=now - HOUR / 2) for _ in range(4)] == [*earlier, None]
    assert next_id(claim, bounds, now=now + HOUR) == latest


@pytest.mark.parametrize("limit", [1, 7])
def test_of_many_jobs_due_at_the_same_moment_none_is_left_out(claim: ClaimConnection, limit: int) -> None:
    ids = enqueue_many([("tests/pass", number) for number in range(100)])
    assert len({row["process_at"] for row in rows("proletarian.job")}) == 1
    found: list[UUID] = []
    with ClaimConnection("default", "other") as other:
        workers = [(claim, ClaimBounds(FOR_EVER)), (other, ClaimBounds(FOR_EVER))]
        while any(taken := [next_jobs(one, bounds, limit=limit) for one, bounds in workers]):
            found += [UUID(job.job_id) for jobs in taken for job in jobs]
    assert len(found) == 100
    assert set(found) == set(ids)


def test_a_bound_in_one_queue_hides_nothing_in_another(claim: ClaimConnection) -> None:
    bounds = ClaimBounds(FOR_EVER)
    old = enqueue_in_order(3, queue="low")
    new = enqueue_in_order(3, queue="high")
    both = ("high", "low")
    assert [next_id(claim, bounds, queues=both) for _ in range(2)] == new[:2]
    assert [next_id(claim, bounds, queues=("low",)) for _ in range(2)] == old[:2]
    newer = enqueue_in_order(2, queue="high")
    assert [next_id(claim, bounds, queues=both) for _ in range(5)] == [new[2], *newer, old[2], None]


@pytest.mark.parametrize(
    ("zone", "style"),
    [
        pytest.param("Europe/Oslo", "ISO, MDY", id="as most servers write it"),
        pytest.param("Asia/Kolkata", "SQL, DMY", id="IST, which is Israel's too"),
        pytest.param("Africa/Maputo", "Postgres, MDY", id="CAT, which PostgreSQL writes and may not read"),
        pytest.param("Asia/Jayapura", "German", id="WIT, likewise"),
    ],
)
def test_a_bound_is_the_same_instant_in_every_time_zone_and_date_style(
    claim: ClaimConnection, zone: str, style: str
) -> None:
    claim.send(f"SET timezone = '{zone}'", f"SET datestyle = '{style}'")
    bounds = ClaimBounds(FOR_EVER)
    ids = enqueue_in_order(3)
    older = datetime.now(UTC) - HOUR
    assert next_id(claim, bounds) == ids[0]
    hidden = enqueue("tests/pass")
    sql(url_of(), "UPDATE proletarian.job SET process_at = %s WHERE job_id = %s", [older, hidden])
    # In order, and the older one last: the bound passed over it and over nothing else.
    assert [next_id(claim, bounds) for _ in range(4)] == [ids[1], ids[2], hidden, None]


@pytest.mark.parametrize("moment", ["-infinity", "0044-03-15 12:00+00 BC", "1883-01-01 12:00:00.000001+00"])
def test_a_process_at_out_of_the_ordinary_can_be_a_bound(claim: ClaimConnection, moment: str) -> None:
    bounds = ClaimBounds(FOR_EVER)
    ids = enqueue_in_order(2)
    sql(url_of(), "UPDATE proletarian.job SET process_at = %s WHERE job_id = %s", [moment, ids[0]])
    assert [next_id(claim, bounds) for _ in range(3)] == [*ids, None]


# -- What it spares --------------------------------------------------------------------------------------------------


def pages(claim: ClaimConnection, since: str | None) -> int:
    """How many pages of tables and indexes a claim that begins at `since` touches."""
    call = claim.call(claim_statement(TABLES, 1), ":proletarian/default", None, since)
    [(text,)] = claim.send(claim.begin(), f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}")
    claim.send("ROLLBACK")
    plan = json.loads(text)[0]["Plan"]
    assert plan["Actual Rows"] == 1
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_the_bounded_claim_passes_over_20000_jobs_that_an_old_transaction_keeps(claim: ClaimConnection) -> None:
    bounds = ClaimBounds(FOR_EVER)
    enqueue_many([("tests/pass", number) for number in range(20_500)])
    with psycopg.connect(url_of()) as old:
        old.execute("SELECT pg_current_xact_id()")
        touched = [pages(claim, None)]
        for _ in range(20):
            assert len(next_jobs(claim, bounds, limit=1000)) == 1000
            touched.append(pages(claim, next(bounds.rounds([DEFAULT]))[0][1]))
        from_the_beginning = pages(claim, None)
    # All of a thousand are due at one moment, that of the statement which enqueued them: so many are walked over.
    assert max(touched) < 100
    assert from_the_beginning > 3 * max(touched)


def test_the_claims_of_jobs_due_one_after_another_touch_ever_the_same_few_pages(claim: ClaimConnection) -> None:
    bounds = ClaimBounds(FOR_EVER)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proletarian.job SELECT gen_random_uuid(), ':proletarian/default', ':tests/pass', '1', 0, "
            "now(), now() - interval '1 hour' + number * interval '1 millisecond' FROM generate_series(1, 20500) number"
        )
    with psycopg.connect(url_of()) as old:
        old.execute("SELECT pg_current_xact_id()")
        at_first = pages(claim, None)
        while (left := 20_500 - len(rows("proletarian.archived_job", "1"))) > 500:
            next_jobs(claim, bounds, limit=min(1000, left - 501))
            next_jobs(claim, bounds)
        at_last = pages(claim, next(bounds.rounds([DEFAULT]))[0][1])
        from_the_beginning = pages(claim, None)
    assert at_last <= at_first + 10
    assert from_the_beginning > 200
