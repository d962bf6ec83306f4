"""A server with settings that are against a job queue: transactions cut short, another time zone, strict isolation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.live.processes import WorkerProcess, archived, insert_jobs, migrate, sql, unlocked_jobs
from tests.postgres import Postgres

pytestmark = pytest.mark.server

Spawn = Callable[..., WorkerProcess]


@pytest.fixture(scope="module")
def impatient() -> Iterator[str]:
    """The URL of a database that ends every transaction that is idle, or open, for longer than 200 milliseconds."""
    with Postgres() as server:
        migrate(server.url)
        (version,) = sql(server.url, "SELECT current_setting('server_version_num')::int")[0]
        settings = {
            "idle_in_transaction_session_timeout": "200ms",
            "default_transaction_isolation": "serializable",
            "timezone": "Asia/Kolkata",
            "datestyle": "SQL, DMY",
        }
        if version >= 170000:
            settings["transaction_timeout"] = "200ms"
        for name, value in settings.items():
            sql(server.url, f"ALTER SYSTEM SET {name} = '{value}'")
        sql(server.url, "SELECT pg_reload_conf()")
        for name, value in settings.items():
            eventually(lambda name=name, value=value: sql(server.url, f"SHOW {name}") == [(value,)])
        yield server.url


@pytest.fixture(autouse=True)
def _empty_tables(impatient: str) -> None:
    sql(impatient, "TRUNCATE proletarian.job, proletarian.archived_job, app_entry CASCADE")


@pytest.mark.parametrize("job_type", ["tests/wait-for-file", "tests/wait-for-file-atomic"])
def test_a_job_that_takes_longer_than_the_server_allows_runs_once(
    impatient: str, spawn: Spawn, tmp_path: Path, job_type: str
) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    insert_jobs(impatient, job_type, [f'["^ ","started","{started}","go","{go}"]'])
    # The second thread would take the job if the first one lost its lock.
    worker = spawn("--threads", "2", "--worker-id", "patient", url=impatient)
    eventually(started.exists)

    # Here time itself is the subject: five times what the server allows.
    eventually(
        lambda: sql(
            impatient,
            "SELECT 1 FROM pg_stat_activity WHERE application_name ^@ 'patient-' AND state = 'idle in transaction' "
            "AND now() - xact_start > interval '1 second'",
        )
    )
    assert unlocked_jobs(impatient) == []
    go.touch()

    eventually(lambda: archived(impatient))
    assert worker.stop() == 0
    assert archived(impatient) == [(f":{job_type}", ":success", 1)]
    assert sql(impatient, "SELECT text FROM app_entry") == [("waited",)]
    assert worker.log.count("handling-job") == 1
    assert "exception" not in worker.log


def test_what_is_due_is_run_and_what_is_not_is_left(impatient: str, spawn: Spawn) -> None:
    insert_jobs(impatient, "tests/append-with-retries", [str(number) for number in range(100)])
    sql(
        impatient,
        "INSERT INTO proletarian.job SELECT gen_random_uuid(), ':proletarian/default', ':tests/append', '1', 0, now(), "
        "now() + interval '10 minutes'",
    )
    workers = [spawn("--threads", "4", "--drain", url=impatient) for _ in range(2)]

    assert [worker.ends() for worker in workers] == [0, 0]

    assert {(job_type, status) for job_type, status, _ in archived(impatient)} == {
        (":tests/append-with-retries", ":success")
    }
    assert sql(impatient, "SELECT count(*), count(DISTINCT job_id) FROM app_entry") == [(100, 100)]
    assert unlocked_jobs(impatient) == [(":tests/append", 0)]
    # Strict isolation would make claims fail on rows that another worker has just changed.
    assert not any("exception" in line or "error" in line for worker in workers for line in worker.log.splitlines())
