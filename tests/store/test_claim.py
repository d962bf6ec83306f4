"""Claiming and recording: the statements, and their plans."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection

from django_proletarian import PlainName, enqueue, enqueue_many
from django_proletarian.connection import COMMIT, ClaimConnection
from django_proletarian.store import ClaimedJob, archiving, as_datetime, claim_due_jobs, replace_archived_job, retry_job
from django_proletarian.tables import Tables
from tests.conftest import rows

TABLES = Tables()
DEFAULT = "proletarian/default"
HOUR = timedelta(hours=1)


def execute(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def claim_next_job(
    claim: ClaimConnection, tables: Tables, queues: list[str], now: datetime | None = None
) -> ClaimedJob | None:
    jobs = claim_due_jobs(claim, tables, queues, now)
    return jobs[0] if jobs else None


class TestClaiming:
    # Source: db_test.clj, test-get-next-job-with-process-at-in-the-past.
    def test_a_due_job_comes_as_it_stands(self, claim: ClaimConnection) -> None:
        job_id = enqueue("shop/mail", [1])
        [row] = rows("proletarian.job")
        job = claim_next_job(claim, TABLES, [DEFAULT])
        assert job == ClaimedJob(
            job_id=str(job_id),
            queue=DEFAULT,
            job_type="shop/mail",
            payload="[1]",
            attempts=0,
            enqueued_at=row["enqueued_at"].timestamp(),
            process_at=row["process_at"].timestamp(),
            is_archived=False,
        )

    # Source: db_test.clj, test-get-next-job-with-process-at-in-the-future.
    def test_a_job_of_the_future_does_not(self, claim: ClaimConnection) -> None:
        enqueue("shop/mail", process_in=HOUR)
        assert claim_next_job(claim, TABLES, [DEFAULT]) is None

    def test_a_clock_replaces_the_databases(self, claim: ClaimConnection) -> None:
        enqueue("shop/mail", process_in=HOUR)
        assert claim_next_job(claim, TABLES, [DEFAULT], datetime.now(UTC) + 2 * HOUR) is not None

    # Source: db_test.clj, test-get-next-job-gets-the-oldest-job.
    def test_the_oldest_due_job_comes_first(self, claim: ClaimConnection) -> None:
        ids = enqueue_many([("shop/mail", number) for number in range(20)])
        random.Random(20).shuffle(ids)
        for place, job_id in enumerate(ids):
            execute(
                "UPDATE proletarian.job SET process_at = now() - %s * interval '1 hour' WHERE job_id = %s",
                20 - place,
                job_id,
            )
        claimed = []
        while (job := claim_next_job(claim, TABLES, [DEFAULT])) is not None:
            claimed.append(UUID(job.job_id))
            claim.send(archiving(claim, TABLES, [job.job_id], "success", None), COMMIT)
        assert claimed == ids

    # Source: db_test.clj, test-get-next-job-skips-locked.
    def test_a_locked_job_is_passed_over_and_not_waited_for(self, claim: ClaimConnection) -> None:
        ids = enqueue_many([("shop/mail", 1), ("shop/mail", 2)])
        with ClaimConnection("default", "other") as second, ClaimConnection("default", "third") as third:
            taken = [claim_next_job(each, TABLES, [DEFAULT]) for each in (claim, second, third)]
        assert {UUID(job.job_id) for job in taken if job is not None} == set(ids)
        assert taken[2] is None

    def test_queues_are_apart_and_plain_names_are_not_keywords(self, claim: ClaimConnection) -> None:
        keyword, plain = enqueue("a", queue="mail"), enqueue("a", queue=PlainName("mail"))
        for queue, job_id in [("mail", keyword), (PlainName("mail"), plain), ("other", None)]:
            job = claim_next_job(claim, TABLES, [queue])
            assert (job and UUID(job.job_id)) == job_id
            claim.send(COMMIT)

    @pytest.mark.parametrize(
        ("stored", "nearest"),
        [
            ("-infinity", datetime.min.replace(tzinfo=UTC)),
            ("4713-01-01 00:00+00 BC", datetime.min.replace(tzinfo=UTC)),
            ("0001-01-01 00:00+00", datetime.min.replace(tzinfo=UTC)),
            ("2026-12-01 21:37:17.597023+00", datetime(2026, 12, 1, 21, 37, 17, 597023, tzinfo=UTC)),
        ],
    )
    def test_a_date_that_python_cannot_hold_does_not_block_the_queue(
        self, claim: ClaimConnection, stored: str, nearest: datetime
    ) -> None:
        enqueue("a")
        execute("UPDATE proletarian.job SET process_at = %s, enqueued_at = 'infinity'", stored)
        job = claim_next_job(claim, TABLES, [DEFAULT], datetime(2027, 1, 1, tzinfo=UTC))
        assert job is not None
        assert (as_datetime(job.process_at), as_datetime(job.enqueued_at)) == (
            nearest,
            datetime.max.replace(tzinfo=UTC),
        )
        claim.send(archiving(claim, TABLES, [job.job_id], "success", None), COMMIT)
        assert rows("proletarian.archived_job", "enqueued_at::text") == [{"enqueued_at": "infinity"}]

    @pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres", "ISO"])
    def test_a_sessions_date_style_changes_nothing(self, claim: ClaimConnection, style: str) -> None:
        enqueue("a")
        [row] = rows("proletarian.job")
        claim.send(f"SET datestyle = '{style}'; SET timezone = 'Asia/Kolkata'")
        job = claim_next_job(claim, TABLES, [DEFAULT])
        assert job is not None
        assert as_datetime(job.process_at) == row["process_at"]


class TestRecording:
    # Source: db_test.clj, test-archive-job! and test-delete-job!.
    @pytest.mark.parametrize("status", ["success", "failure"])
    def test_archiving_moves_the_row_and_counts_the_attempt(self, claim: ClaimConnection, status: str) -> None:
        job_id = enqueue("shop/mail", {"id": 42})
        [row] = rows("proletarian.job")
        now = datetime(2030, 1, 1, tzinfo=UTC)
        assert claim_next_job(claim, TABLES, [DEFAULT], now) is not None
        claim.send(archiving(claim, TABLES, [str(job_id)], status, now), COMMIT)
        assert rows("proletarian.job") == []
        assert rows("proletarian.archived_job") == [{**row, "attempts": 1, "status": f":{status}", "finished_at": now}]

    # Source: db_test.clj, test-retry-at!.
    def test_a_retry_counts_the_attempt_and_moves_the_date(self, claim: ClaimConnection) -> None:
        job_id = enqueue("shop/mail", {"id": 42})
        [row] = rows("proletarian.job")
        now = datetime(2030, 1, 1, tzinfo=UTC)
        claim_next_job(claim, TABLES, [DEFAULT], now)
        assert retry_job(claim, TABLES, str(job_id), timedelta(seconds=1.5), now) == now + timedelta(seconds=1.5)
        claim.send(COMMIT)
        assert rows("proletarian.job") == [{**row, "attempts": 1, "process_at": now + timedelta(seconds=1.5)}]

    def test_a_days_delay_is_24_hours_in_a_session_that_goes_to_summer_time(self, claim: ClaimConnection) -> None:
        job_id = enqueue("shop/mail")
        before = datetime(2026, 3, 28, 12, tzinfo=UTC)
        claim.send("SET timezone = 'Europe/Oslo'")
        assert retry_job(claim, TABLES, str(job_id), timedelta(days=1), before) == before + timedelta(hours=24)

    def test_an_id_in_the_archive_is_replaced_when_asked(self, claim: ClaimConnection) -> None:
        job_id = enqueue("old", 1)
        claim_next_job(claim, TABLES, [DEFAULT])
        claim.send(archiving(claim, TABLES, [str(job_id)], "failure", None), COMMIT)
        enqueue("new", 2, job_id=job_id)
        job = claim_next_job(claim, TABLES, [DEFAULT])
        assert job is not None
        assert job.is_archived
        assert replace_archived_job(claim, TABLES, str(job_id), "success", None)
        claim.send(COMMIT)
        assert rows("proletarian.job") == []
        [row] = rows("proletarian.archived_job")
        assert (row["job_type"], row["payload"], row["attempts"], row["status"]) == (
            ":new",
            '["~#\'",2]',
            1,
            ":success",
        )

    def test_a_role_that_may_not_change_the_archive_keeps_its_older_row_and_no_job(
        self, claim: ClaimConnection
    ) -> None:
        job_id = enqueue("old")
        claim_next_job(claim, TABLES, [DEFAULT])
        claim.send(archiving(claim, TABLES, [str(job_id)], "failure", None), COMMIT)
        enqueue("new", job_id=job_id)
        # The original's grants, database/privileges/tables.sql.
        execute(
            "DROP ROLE IF EXISTS clerk; CREATE ROLE clerk; GRANT USAGE ON SCHEMA proletarian TO clerk;"
            "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON proletarian.job TO clerk;"
            "GRANT SELECT, INSERT, TRUNCATE ON proletarian.archived_job TO clerk"
        )
        try:
            claim.send("SET ROLE clerk")
            claim_next_job(claim, TABLES, [DEFAULT])
            assert not replace_archived_job(claim, TABLES, str(job_id), "success", None)
            claim.send(COMMIT)
        finally:
            claim.close()
            execute("DROP OWNED BY clerk; DROP ROLE clerk")
        assert rows("proletarian.job") == []
        assert [row["job_type"] for row in rows("proletarian.archived_job")] == [":old"]
