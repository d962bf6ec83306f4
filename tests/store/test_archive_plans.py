"""The archive's index by finished_at is what retention and the admin's list go by, whatever the statistics say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_proletarian import activity, metrics, overview
from django_proletarian.admin import lists
from django_proletarian.connection import ClaimConnection
from django_proletarian.retention import _prune
from django_proletarian.tables import Tables
from tests.store.test_plans import execute, nodes

TABLES = Tables()
ROWS = 100_000
INDEX = "archived_job_finished_at"
PEEKED = 33  # rows that a sort of those that finished at one time may read beyond the last


def fill(rows: int = ROWS) -> None:
    """An archive in which few jobs failed, and a few finished long before all others."""
    # An automatic ANALYZE that comes while rows are not committed yet would count none.
    execute("ALTER TABLE proletarian.archived_job SET (autovacuum_enabled = off)")
    execute(
        "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), "
        "CASE WHEN number % 1000 = 0 THEN ':rare' ELSE ':proletarian/default' END, ':shop/mail', '1', 1, now(), now(), "
        "CASE WHEN number % 500 = 0 THEN ':failure' ELSE ':success' END, "
        "now() - CASE WHEN number < 1000 THEN interval '1 year' ELSE interval '0' END - number * interval '1 second' "
        f"FROM generate_series(1, {rows}) AS number"
    )


def fill_and_analyze() -> None:
    fill()
    execute("ANALYZE proletarian.archived_job")


def analyze_then_fill() -> None:
    """The statistics know a hundred rows, all of one minute."""
    fill(100)
    execute("ANALYZE proletarian.archived_job")
    fill()


SITUATIONS = [fill, fill_and_analyze, analyze_then_fill]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_prune_batch_reads_as_many_rows_as_it_may_and_no_more(
    claim: ClaimConnection, situation: Callable[[], None]
) -> None:
    situation()
    execute(
        "INSERT INTO proletarian.job_attempt (job_id, attempt, started_at, finished_at, outcome) "
        "SELECT job_id, 1, now(), now(), 'failure' FROM proletarian.archived_job"
    )
    prune = _prune(TABLES, 1000, with_attempts=True)
    for values in [
        (7 * 86400, None, None, None, None, None),
        (0, ":failure", [":rare"], None, 1577836800.0, "00000000-0000-0000-0000-000000000001"),
        (30 * 86400, ":failure", None, None, 0.0, "00000000-0000-0000-0000-000000000001"),
    ]:
        claim.send(claim.begin())
        plan = nodes(claim, claim.call(prune, *values), analyze=True)
        claim.send("ROLLBACK")
        kinds = {node["Node Type"] for node in plan}
        assert "Seq Scan" not in kinds
        [walk] = [node for node in plan if node.get("Index Name") == INDEX]
        assert walk["Node Type"] == "Index Scan"
        assert walk["Actual Rows"] <= 1000 + PEEKED
        assert "finished_at < " in walk["Index Cond"]
        assert "finished_at >= " in walk["Index Cond"]
        # The rows are deleted by their place, not looked up by another index.
        assert {node["Node Type"] for node in plan if node.get("Relation Name") == "archived_job"} == {
            "Index Scan",
            "Tid Scan",
            "ModifyTable",
        }


@pytest.mark.django_db
@pytest.mark.parametrize("situation", SITUATIONS)
def test_admin_overview_and_metrics_read_no_more_than_they_show(
    situation: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    situation()
    admins_list_reads_one_page()
    overview_reads_no_more_than_it_counts(monkeypatch)


def admins_list_reads_one_page() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    for filters in ({}, {"status": "success"}, {"queue": "proletarian/default"}):
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/admin/django_proletarian/archivedjob/", filters).status_code == 200
        ordered = [query["sql"] for query in queries if ' ORDER BY "proletarian"."archived_job"' in query["sql"]]
        [page] = [sql for sql in ordered if "COUNT" not in sql]
        with transaction.atomic(), connection.cursor() as cursor:
            lists.walk_along_indexes(cursor)  # as the page does
            plan = plan_of(page)
        [scan] = [node for node in plan if node.get("Relation Name") == "archived_job"]
        assert (scan["Node Type"], scan["Index Name"], scan["Scan Direction"]) == ("Index Scan", INDEX, "Backward")
        assert scan["Actual Rows"] <= 51 + PEEKED, plan
        assert "Sort" not in {node["Node Type"] for node in plan}


def plan_of(statement: str) -> list[dict[str, Any]]:
    """Every node of the plan that Django's connection runs a statement with."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        todo, plan = [cursor.fetchone()[0][0]["Plan"]], []
    while todo:
        plan.append(todo.pop())
        todo += plan[-1].get("Plans", [])
    return plan


def overview_reads_no_more_than_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit in ((overview, "MOST_COUNTED"), (overview, "MOST_RECENT"), (metrics, "MOST_RECENT")):
        monkeypatch.setattr(module, limit, 500)
    execute(
        "INSERT INTO proletarian.job SELECT job_id, queue, job_type, payload, attempts, enqueued_at, "
        "now() + (row_number() OVER () - 20000) * interval '1 second' FROM proletarian.archived_job"
    )
    # In this order: a cursor that was there before is not listened to.
    with CaptureQueriesContext(connection) as queries, connection.cursor() as cursor:
        overview.prefer_indexes(cursor)
        overview.queue_states(cursor, TABLES, ["mail"])
        overview.finished_jobs(cursor, TABLES)
        metrics.recent_jobs(cursor, TABLES)
        activity.activity(cursor, TABLES, timezone.now())
    statements = 0
    for query in queries:
        statement = query["sql"].strip().removeprefix("EXPLAIN (FORMAT JSON) ")
        if statement.startswith("SET") or statement != query["sql"].strip():
            continue
        scans = [node for node in plan_of(statement) if node.get("Relation Name") in ("job", "archived_job")]
        statements += bool(scans)
        assert {node["Node Type"] for node in scans} <= {"Index Scan", "Index Only Scan"}
        of_failures = {"archived_job_failures"} if "':failure'" in statement else set()
        assert {node["Index Name"] for node in scans} <= (of_failures or {INDEX, "job_queue_process_at"})
        # In each loop, which is one for each queue or slot.
        assert all(node["Actual Rows"] <= 501 for node in scans)
    assert statements == 3 + 4
