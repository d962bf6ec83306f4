"""What the original left in its tables at each moment of a run, and what ours leaves: byte for byte the same.

tests/clojure/rows.jsonl is what it left. Here its job rows are put into the queue as they were, our worker runs them
with a clock that stands where the original's stood, and its later rows are expected.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_proletarian import NewJob, create_queue_worker, enqueue, enqueue_many, names
from django_proletarian.connection import ClaimConnection
from django_proletarian.handlers import Handler
from django_proletarian.transit import decode
from django_proletarian.worker import process_next_job

RECORDED: dict[str, list[dict[str, str]]] = {}
for line in (Path(__file__).parent.parent / "clojure" / "rows.jsonl").read_text().splitlines():
    row = json.loads(line)
    RECORDED.setdefault(row["case"], []).append(row)

COLUMNS = ["job_id", "queue", "job_type", "payload", "attempts", "enqueued_at", "process_at"]


def stored() -> list[dict[str, str]]:
    """All rows of both tables as text, as rows.jsonl has them."""
    found = []
    with connection.cursor() as cursor:
        cursor.execute("SET TIME ZONE 'UTC'")
        for table, columns in [
            ("proletarian.job", COLUMNS),
            ("proletarian.archived_job", [*COLUMNS, "status", "finished_at"]),
        ]:
            cursor.execute(f"SELECT {', '.join(f'{column}::text' for column in columns)} FROM {table}")
            found += [dict(zip(columns, row, strict=True)) | {"table": table} for row in cursor.fetchall()]
    return found


def expected(recorded: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in recorded.items() if key not in ("case", "ms")}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@dataclass(frozen=True)
class Run:
    """How our worker is to meet a recorded case: how often its handler fails first, with which strategy, and the
    delays after the attempts that rows.jsonl has no row of."""

    case: str
    failures: int = 0
    strategy: dict[str, Any] | None = None
    unseen_delays: tuple[float, ...] = ()
    error: type[BaseException] = ValueError


RUNS = [
    Run("success, default queue"),
    Run("fail, no retry strategy", failures=9),
    Run("fail, {:retries 2 :delays [1000 2000]}", failures=9, strategy={"retries": 2, "delays": [1, 2]}),
    Run(
        "fail once then success, {:retries 2 :delays [1000 2000]}",
        failures=1,
        strategy={"retries": 2, "delays": [1, 2]},
    ),
    Run(
        "fail, {:retries 3 :delays [100 200]} (fewer delays than retries)",
        failures=9,
        strategy={"retries": 3, "delays": [0.1, 0.2]},
        unseen_delays=(0.1, 0.2, 0.2),
    ),
    Run("fail, {:retries 1} (no delays)", failures=9, strategy={"retries": 1}, unseen_delays=(0,)),
    Run("fail, {:retries 0}", failures=9, strategy={"retries": 0}),
    Run("process-in 1500 ms"),
    Run("process-at in the past"),
    Run("process-in negative"),
    Run("un-namespaced keyword job type"),
    Run("string job type"),
    Run("symbol job type"),
    Run("nil job type"),
    Run("keyword queue"),
    Run("ns keyword queue"),
    Run("string queue"),
    Run("nil queue"),
    # Java's Error is no Exception; Python's AssertionError is one, so what is no Exception here stands for it.
    Run("handler throws Error (AssertionError), queue :errq", failures=9, error=BaseException),
]


def test_every_recorded_case_is_run() -> None:
    assert {run.case for run in RUNS} == set(RECORDED)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.case)
def test_each_moment_leaves_what_the_original_left(run: Run, claim: ClaimConnection) -> None:
    first, *later = RECORDED[run.case]
    insert_as_clojure_did(first)
    assert stored() == [expected(first)]

    failures_left = run.failures

    def handle(job: object) -> None:
        nonlocal failures_left
        failures_left -= 1
        if failures_left >= 0:
            raise run.error

    clock = Clock(at(first["process_at"]))
    handler = Handler(job_type="any", function=handle, takes="job", retry_strategy=run.strategy)
    options = create_queue_worker(clock=clock.now).options
    options = replace(options, find_handler=lambda job_type: handler)
    queue = names.from_stored(first["queue"])

    for moment in later:
        # Attempts that left no row of their own: each is due when the one before says.
        unseen = int(moment["attempts"]) - int(stored()[0]["attempts"]) - 1
        last_delay = run.unseen_delays[unseen - 1] if unseen else 0
        for number in range(unseen):
            is_last = number == unseen - 1
            clock.time = (
                at(moment["process_at"]) - timedelta(seconds=last_delay) if is_last else at(stored()[0]["process_at"])
            )
            assert process_next_job(options, claim, queue)
        if "finished_at" in moment:
            clock.time = at(moment["finished_at"])
        else:
            assert run.strategy is not None
            delay = run.strategy["delays"][int(moment["attempts"]) - 1]
            clock.time = at(moment["process_at"]) - timedelta(seconds=delay)
        assert process_next_job(options, claim, queue)
        assert stored() == [expected(moment)]

    if not later:
        with pytest.raises(run.error):
            process_next_job(options, claim, queue)
        assert stored() == [expected(first)], "untouched"


@pytest.mark.parametrize("case", list(RECORDED))
def test_our_enqueue_makes_the_row_that_the_original_made(case: str, committed: None, settings: Any) -> None:
    made = RECORDED[case][0]
    settings.PROLETARIAN = {"CLOCK": lambda: at(made["enqueued_at"])}
    job = NewJob(
        names.from_stored(made["job_type"]),
        decode(made["payload"]),
        queue=names.from_stored(made["queue"]),
        process_at=at(made["process_at"]),
        job_id=made["job_id"],
    )
    enqueue(job.job_type, job.payload, queue=job.queue, process_at=job.process_at, job_id=job.job_id)
    assert stored() == [expected(made)]
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE proletarian.job")
    enqueue_many([job])
    assert stored() == [expected(made)]


class Clock:
    """Stands where it is put."""

    def __init__(self, time: datetime) -> None:
        self.time = time

    def now(self) -> datetime:
        return self.time


def insert_as_clojure_did(recorded: dict[str, str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proletarian.job VALUES (%s, %s, %s, %s, %s, %s, %s)", [recorded[column] for column in COLUMNS]
        )
