"""What proletarian_status says about queues, finished jobs and live workers."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_proletarian import NewJob, QueueWorker, enqueue, enqueue_many, job_handler, overview, presence
from django_proletarian.tables import Tables
from tests.conftest import eventually
from tests.live.blocking import Blocking
from tests.live.processes import sql, url_of

pytestmark = pytest.mark.usefixtures("committed")

RunWorker = Callable[..., QueueWorker]
QUEUE = "proletarian/default"


def status(*arguments: str) -> str:
    out = io.StringIO()
    call_command("proletarian_status", *arguments, stdout=out)
    return out.getvalue()


def taken() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(status("--json"))
    return answer


def archive(minutes: float, number: int = 1, *, status: str = "success", queue: str = QUEUE) -> None:
    sql(
        url_of(),
        "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), %s, ':shop/mail', '1', 1, now(), now(), %s, "
        "now() - %s * interval '1 minute' FROM generate_series(1, %s)",
        (f":{queue}", f":{status}", minutes, number),
    )


def exactly(number: int) -> dict[str, Any]:
    return {"value": number, "is_exact": True}


def test_each_queue_is_told_with_what_is_due_and_scheduled() -> None:
    enqueue_many([NewJob("a", queue="mail")] * 3 + [NewJob("a", queue="mail", process_in=timedelta(hours=1))] * 2)
    sql(url_of(), "UPDATE proletarian.job SET process_at = now() - interval '90 seconds' WHERE process_at <= now()")
    mail, default = sorted(taken()["queues"], key=lambda state: state["queue"])
    assert (mail["queue"], mail["due"], mail["scheduled"]) == ("mail", exactly(3), exactly(2))
    assert 90 <= mail["oldest_due"] < 120
    assert default == {"queue": QUEUE, "due": exactly(0), "scheduled": exactly(0), "oldest_due": None}


def test_what_finished_lately_is_told_by_queue_and_status() -> None:
    archive(10, 5)
    archive(90, 7)
    archive(2000, 9)
    archive(10, 2, status="failure", queue="mail")
    assert taken()["finished"] == [
        {"queue": "mail", "status": "failure", "last_hour": exactly(2), "last_day": exactly(2)},
        {"queue": QUEUE, "status": "success", "last_hour": exactly(5), "last_day": exactly(12)},
    ]


def test_what_is_too_much_to_count_is_estimated_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MOST_COUNTED", 100)
    monkeypatch.setattr(overview, "MOST_RECENT", 60)
    enqueue_many([NewJob("a")] * 500)
    archive(0, 240)
    sql(
        url_of(),
        "UPDATE proletarian.archived_job SET finished_at = finished_at - interval '1 minute' * (number - 0.5) FROM "
        "(SELECT job_id AS id, row_number() OVER () AS number FROM proletarian.archived_job) AS numbered "
        "WHERE job_id = id",
    )
    sql(url_of(), "ANALYZE proletarian.job, proletarian.archived_job")
    [state] = taken()["queues"]
    assert state["due"] == {"value": pytest.approx(500, rel=0.2), "is_exact": False}
    [jobs] = taken()["finished"]
    # The newest 60 tell of the last hour, and stand for the day.
    assert jobs["last_hour"] == {"value": pytest.approx(60, abs=2), "is_exact": False}
    assert jobs["last_day"] == {"value": pytest.approx(1440, rel=0.05), "is_exact": False}
    said = status()
    assert "~240" in said
    assert "~ is an estimate." in said


def test_it_fits_a_terminal() -> None:
    enqueue("a", queue="mail")
    archive(10, 1200)
    lines = status().splitlines()
    assert lines[2] == "queue                due  oldest due  scheduled"
    assert [line.split()[0] for line in lines[3:5]] == ["mail", QUEUE]
    assert "proletarian/default  success      1,200     1,200" in lines
    assert "unknown before an ANALYZE" in status()


def test_workers_that_are_alive_are_told_with_what_runs(
    run_worker: RunWorker, blocking: Callable[[], Blocking]
) -> None:
    block = blocking()
    job_handler("tests/block")(block)
    twins = [run_worker(worker_id="twin-9", threads=4) for _ in range(2)]
    enqueue_many([NewJob("tests/block")] * 3)

    def told() -> list[tuple[str, Any]]:
        return [(worker["worker_id"], worker["running"]) for worker in taken()["workers"]]

    eventually(lambda: len(told()) == 2 and sum(running for _, running in told()) == 3)
    assert {name for name, _ in told()} == {"twin-9"}
    block.go.set()
    eventually(lambda: sum(running for _, running in told()) == 0)
    # The server lets go of a closed connection's lock in a moment.
    assert twins[0].stop()
    eventually(lambda: len(taken()["workers"]) == 1)
    assert twins[1].stop()
    eventually(lambda: taken()["workers"] == [])


def test_a_worker_on_other_tables_is_not_one_of_ours(run_worker: RunWorker) -> None:
    run_worker()
    eventually(lambda: taken()["workers"])
    with connection.cursor() as cursor:
        assert presence.live_workers(cursor, Tables(job="other.job")) == []


def test_watching_goes_on_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert [len(json.loads(line)) for line in status("--json", "--watch").splitlines()] == [6, 6]
    assert slept == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--watch", "0"], "'0' is not above zero"),
        (["--watch", "soon"], "'soon' is no duration"),
        (["--database", "sqlite"], 'Database "sqlite" is sqlite'),
    ],
)
def test_an_option_that_can_not_be_is_named(arguments: list[str], named: str) -> None:
    with pytest.raises(CommandError, match=named):
        status(*arguments)


def test_without_the_archives_index_the_archive_is_not_read() -> None:
    archive(1)
    sql(url_of(), "DROP INDEX proletarian.archived_job_finished_at")
    try:
        assert taken()["finished"] is None
        assert "no index on finished_at" in status()
    finally:
        sql(url_of(), "CREATE INDEX archived_job_finished_at ON proletarian.archived_job (finished_at)")
