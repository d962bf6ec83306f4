"""How the server runs the worker's statements: by index, whatever it knew of the tables when it made the plan."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from django_proletarian import NewJob, enqueue_many, store
from django_proletarian.connection import ClaimConnection, Statement
from django_proletarian.store import claim_due_jobs
from django_proletarian.tables import Tables, for_tables

TABLES = Tables()
DEFAULT = "proletarian/default"
ROWS = 5000


def execute(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


def fill() -> None:
    """Many jobs and a big archive, in many queues, most of them in one."""
    chance = random.Random(1)
    enqueue_many(
        NewJob(f"type-{number}", queue=chance.choice([DEFAULT] * 9 + [f"queue-{number}"])) for number in range(ROWS)
    )
    execute(
        "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), queue, job_type, payload, 1, enqueued_at, "
        "process_at, ':success', now() FROM proletarian.job"
    )


def fill_and_analyze() -> None:
    fill()
    execute("ANALYZE proletarian.job, proletarian.archived_job")


def fill_after_a_vacuum_of_empty_tables(claim: ClaimConnection) -> None:
    execute("VACUUM ANALYZE proletarian.job, proletarian.archived_job")
    use_generic_plans(claim)
    fill()


def fill_after_an_analyze_of_other_queues() -> None:
    enqueue_many(NewJob("a", queue=f"other-{number}") for number in range(100))
    execute("ANALYZE proletarian.job, proletarian.archived_job")
    fill()


def use_generic_plans(claim: ClaimConnection) -> None:
    """Run each statement so often that the server makes its one plan for all values, as it does after five runs."""
    for _ in range(7):
        for call in calls(claim).values():
            claim.send(claim.begin(), call, "ROLLBACK")


def calls(claim: ClaimConnection) -> dict[str, str]:
    def made(name: str, text: Any, types: tuple[str, ...], *values: object) -> str:
        return claim.call(Statement(name, types, for_tables(text, TABLES)), *values)

    job_id, archive, replace = uuid4(), ("uuid[]", "text", "timestamptz"), ("uuid", "text", "timestamptz")
    return {
        "claim": claim.call(store.claim_statement(TABLES, 1), ":proletarian/default", None, None),
        "bounded": claim.call(store.claim_statement(TABLES, 1), ":proletarian/default", None, 1577836800.0),
        "batch": claim.call(store.claim_statement(TABLES, 100), ":proletarian/default", None, None),
        "archive": made("proletarian_archive", store.ARCHIVE_JOBS, archive, f"{{{job_id}}}", ":success", None),
        "replace": made("proletarian_replace", store.REPLACE_ARCHIVED_JOB, replace, job_id, ":success", None),
        "retry": made("proletarian_retry", store.RETRY_JOB, ("uuid", "float8", "timestamptz"), job_id, 1.0, None),
    }


def nodes(claim: ClaimConnection, call: str, *, analyze: bool = False) -> list[dict[str, Any]]:
    """Every node of a call's plan."""
    [(text,)] = claim.send(f"EXPLAIN ({'ANALYZE, ' if analyze else ''}FORMAT JSON) {call}")
    found, todo = [], [json.loads(text)[0]["Plan"]]
    while todo:
        node = todo.pop()
        found.append(node)
        todo += node.get("Plans", [])
    return found


@pytest.mark.parametrize("generic", [True, False], ids=["one plan for all values", "a plan for these values"])
@pytest.mark.parametrize("situation", [fill, fill_and_analyze, fill_after_an_analyze_of_other_queues, None])
def test_every_statement_goes_by_index(
    claim: ClaimConnection, situation: Callable[[], None] | None, generic: bool
) -> None:
    if situation is not None:
        situation()
    else:
        fill_after_a_vacuum_of_empty_tables(claim)
    if generic:
        use_generic_plans(claim)
    for name, call in calls(claim).items():
        plan = nodes(claim, call)
        kinds = {node["Node Type"] for node in plan}
        assert "Seq Scan" not in kinds, name
        assert "Sort" not in kinds, name
        scans = {node["Index Name"] for node in plan if "Index Name" in node}
        if name in ("claim", "bounded", "batch"):
            # Source of the first: db_test.clj, test-index.
            assert scans == {"job_queue_process_at", "archived_job_pkey"}, name
            [scan] = [node for node in plan if node.get("Index Name") == "job_queue_process_at"]
            assert scan["Node Type"] == "Index Scan"
            for condition in ("queue = ", "process_at <= ", "process_at >= "):
                assert condition in scan["Index Cond"], name
        else:
            assert scans <= {"job_pkey", "archived_job_pkey"}, name
            assert "job_pkey" in scans


def test_the_archive_is_asked_about_one_row_only(claim: ClaimConnection) -> None:
    fill_and_analyze()
    with ClaimConnection("default", "other") as other:
        assert claim_due_jobs(other, TABLES, [DEFAULT])
        [(text,)] = claim.send(claim.begin(), f"EXPLAIN (ANALYZE, FORMAT JSON) {calls(claim)['claim']}")
    todo, loops = [json.loads(text)[0]["Plan"]], []
    while todo:
        node = todo.pop()
        todo += node.get("Plans", [])
        if node.get("Index Name") == "archived_job_pkey":
            loops.append(node["Actual Loops"])
    assert loops == [1]


def test_a_process_at_in_a_million_years_is_no_bound_to_what_is_due(claim: ClaimConnection) -> None:
    enqueue_many([NewJob("a", process_in=timedelta(days=1)), NewJob("b")])
    [job] = claim_due_jobs(claim, TABLES, [DEFAULT], limit=2)
    assert job.job_type == "b"
