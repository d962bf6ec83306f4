"""No page of the admin reads a table to its end, whatever is filtered or searched there."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_proletarian import job_search, job_states
from django_proletarian.admin import attempts, lists
from django_proletarian.models import ArchivedJob
from tests.store.test_archive_plans import plan_of
from tests.store.test_plans import execute

ROWS = 6_000
LIMIT = 300
TABLES = {"job", "archived_job", "job_attempt"}
QUEUE = {"queue": "proletarian/default"}
JOBS: list[dict[str, str]] = [
    {},
    QUEUE,
    *({"state": state} for state in ("due", "scheduled", "retrying", "running")),
    {"state": "retrying", "queue": "rare"},
    {"process_at": "2030"},
    {"state": "due", "process_at": "2026-01"},
    {"job_type": "shop/rare"},
    {"job_type": "shop/rare", "state": "retrying", **QUEUE},
    {"q": "nowhere", **QUEUE},
    {"q": "nowhere", "state": "due", "queue": "rare"},
]
ARCHIVE: list[dict[str, str]] = [
    {},
    QUEUE,
    {"queue": "rare"},
    {"status": "success"},
    {"status": "failure"},
    {"status": "failure", "queue": "rare"},
    {"status": "none"},
    {"job_type": "shop/rare"},
    {"finished_at": "2025"},
    {"finished_at": "2025-06", "job_type": "none"},
    {"q": "nowhere", **QUEUE},
    {"q": "nowhere", "status": "failure", **QUEUE},
]
ATTEMPTS: list[dict[str, str]] = [{}, {"outcome": "crash"}]


def fill() -> None:
    values = (
        "gen_random_uuid(), CASE WHEN number % 1000 = 0 THEN ':rare' ELSE ':proletarian/default' END, "
        "CASE WHEN number % 900 = 0 THEN ':shop/rare' ELSE ':shop/mail' END, 'here', number % 20 / 19, now()"
    )
    numbers = f"FROM generate_series(1, {ROWS}) AS number"
    execute(
        f"INSERT INTO proletarian.job SELECT {values}, now() + (number - {ROWS // 2}) * interval '1 hour' {numbers}"
    )
    execute(
        f"INSERT INTO proletarian.archived_job SELECT {values}, now(), "
        "CASE WHEN number % 10 = 0 THEN ':failure' ELSE ':success' END, "
        f"'2026-06-01'::timestamptz - number * interval '1 hour' {numbers}"
    )
    execute(
        "INSERT INTO proletarian.job_attempt (job_id, attempt, started_at, finished_at, outcome) "
        "SELECT job_id, 1, now(), now(), 'failure' FROM proletarian.archived_job"
    )


@pytest.mark.django_db
@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never analyzed"])
def test_no_page_reads_more_than_its_limit(analyzed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fill()
    if analyzed:
        execute("ANALYZE proletarian.job, proletarian.archived_job, proletarian.job_attempt")
    for module, name in [
        *((job_search, name) for name in ("MOST_LOOKED_AT", "MOST_SEARCHED", "MOST_FOUND")),
        *((lists, "MOST_COUNTED"), (attempts, "MOST_LOOKED_AT"), (job_states, "MOST_LOOKED_AT")),
    ]:
        monkeypatch.setattr(module, name, LIMIT)
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    for model, pages in (("job", JOBS), ("archivedjob", ARCHIVE), ("jobattempt", ATTEMPTS)):
        for query in pages:
            with CaptureQueriesContext(connection) as queries:
                assert client.get(f"/admin/django_proletarian/{model}/", query).status_code == 200
            scans = 0
            for sql in (each["sql"].strip() for each in queries):
                if "proletarian" not in sql or not sql.startswith(("SELECT", "WITH")) or "django_" in sql:
                    continue
                for scan in scans_of(sql):
                    scans += 1
                    told = f"{model} {query}: {sql[:500]} {scan}"
                    assert scan["Node Type"] != "Seq Scan", told
                    read = scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)
                    assert read * scan["Actual Loops"] <= 2 * job_search.MOST_LOOKED_AT + 50, told
            assert scans, (model, query)


@pytest.mark.django_db
def test_a_jobs_page_reads_no_attempts_but_its_own_also_before_the_first_analyze() -> None:
    fill()
    execute(
        "INSERT INTO proletarian.job_attempt (job_id, attempt, started_at, finished_at, outcome) "
        "SELECT gen_random_uuid(), 1, now(), now(), 'failure' FROM generate_series(1, 300000)"
    )
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    job = ArchivedJob.objects.filter(status="failure")[0]
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"/admin/django_proletarian/archivedjob/{job.pk}/change/").status_code == 200
    asked = [query["sql"] for query in queries if '"job_attempt"' in query["sql"] and "privilege" not in query["sql"]]
    assert len(asked) == 2  # all of them, and the last error
    for sql in asked:
        for scan in (node for node in plan_of(sql) if node.get("Relation Name") == "job_attempt"):
            assert scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) <= 1, scan


def scans_of(sql: str) -> list[dict[str, Any]]:
    with transaction.atomic(), connection.cursor() as cursor:
        lists.walk_along_indexes(cursor)  # as the pages do
        # A bitmap's index is read below the node that names the table.
        return [node for node in plan_of(sql) if node.get("Relation Name") in TABLES]
