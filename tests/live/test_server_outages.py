"""The server stops and starts, or is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.live.processes import WorkerProcess, archived, claims_of, insert_jobs, migrate, sql
from tests.postgres import Postgres

pytestmark = pytest.mark.server

Spawn = Callable[..., WorkerProcess]

either_mode = pytest.mark.parametrize("mode", ["fast", "immediate"])


@pytest.fixture(scope="module")
def module_server() -> Iterator[Postgres]:
    with Postgres() as server:
        migrate(server.url)
        yield server


@pytest.fixture
def server(module_server: Postgres) -> Postgres:
    """A running server with empty tables."""
    sql(module_server.url, "TRUNCATE proletarian.job, proletarian.archived_job, app_entry CASCADE")
    return module_server


def outage_lines(worker: WorkerProcess) -> list[str]:
    """The worker's lines about its database: when it went away, when it was back."""
    found = ("sql-transient-exception", "database-is-back", "job-worker-error")
    return [event for line in worker.log.splitlines() for event in found if event in line]


@either_mode
def test_an_idle_worker_survives_a_restart_of_the_server(server: Postgres, spawn: Spawn, mode: str) -> None:
    worker = spawn("--threads", "4", "--worker-id", "idle", url=server.url)
    eventually(lambda: claims_of(server.url, "idle"))

    server.stop(mode)
    worker.says("sql-transient-exception")
    server.start()
    insert_jobs(server.url, "tests/append", ["1"])

    eventually(lambda: archived(server.url) == [(":tests/append", ":success", 1)])
    worker.says("database-is-back")
    assert worker.stop() == 0
    assert outage_lines(worker) == ["sql-transient-exception", "database-is-back"]


@either_mode
def test_a_busy_worker_survives_a_restart_of_the_server_and_loses_nothing(
    server: Postgres, spawn: Spawn, mode: str
) -> None:
    insert_jobs(server.url, "tests/append-with-retries", [str(number) for number in range(200)])
    worker = spawn("--threads", "4", url=server.url)
    eventually(lambda: len(archived(server.url)) > 50)

    server.stop(mode)
    assert "shutting-down" not in worker.log
    server.start()

    eventually(lambda: len(archived(server.url)) == 200)
    assert worker.stop() == 0
    assert {status for _, status, _ in archived(server.url)} == {":success"}
    assert sql(server.url, "SELECT count(DISTINCT job_id) FROM app_entry") == [(200,)]
    assert sql(server.url, "SELECT count(*) FROM proletarian.job") == [(0,)]
    assert outage_lines(worker) == ["sql-transient-exception", "database-is-back"]


@either_mode
def test_a_job_that_outlives_the_server_is_run_again(server: Postgres, spawn: Spawn, tmp_path: Path, mode: str) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    insert_jobs(server.url, "tests/wait-for-file", [f'["^ ","started","{started}","go","{go}"]'])
    worker = spawn(url=server.url)
    eventually(started.exists)

    server.stop(mode)
    server.start()
    go.touch()

    eventually(lambda: archived(server.url))
    assert archived(server.url) == [(":tests/wait-for-file", ":success", 1)]
    assert worker.stop() == 0
    assert sql(server.url, "SELECT text FROM app_entry") == [("waited",), ("waited",)]


def test_a_worker_that_starts_before_its_server_waits_and_says_so(server: Postgres, spawn: Spawn) -> None:
    insert_jobs(server.url, "tests/append", ["1"])
    server.stop()
    worker = spawn("--threads", "4", url=server.url)
    worker.says("sql-transient-exception")

    server.start()

    eventually(lambda: archived(server.url) == [(":tests/append", ":success", 1)])
    assert worker.stop() == 0
    assert outage_lines(worker) == ["sql-transient-exception", "database-is-back"]
