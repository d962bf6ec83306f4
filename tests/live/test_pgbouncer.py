"""Workers behind PgBouncer, which gives every transaction, or every session, whichever server connection is free."""

from __future__ import annotations

import configparser
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_proletarian import QueueWorker, enqueue, enqueue_many
from django_proletarian.connection import ClaimConnection
from django_proletarian.inserts import PREPARED_AFTER, JobRow, insert_job
from django_proletarian.store import archiving, claim_due_jobs
from django_proletarian.tables import Tables
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.docs.pages import REPOSITORY, blocks
from tests.live.listening import asleep, holders, listening
from tests.live.pgbouncer import PROGRAM, PgBouncer
from tests.live.processes import WorkerProcess, archived, sql, unlocked_jobs, url_of

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(PROGRAM is None, reason="this machine has no pgbouncer (Debian's package of that name)"),
]

RunWorker = Callable[..., QueueWorker]
Spawn = Callable[..., WorkerProcess]

TABLES = Tables()
DEFAULT = "proletarian/default"
FOR_EVER = 1000.0  # seconds

pool_modes = pytest.mark.parametrize("pool_mode", ["transaction", "session"])


@pytest.fixture
def pool_mode() -> str:
    """Of the tests that are not about it: the harder one."""
    return "transaction"


@pytest.fixture
def bouncer(committed: None, pool_mode: str) -> Iterator[PgBouncer]:
    with PgBouncer(pool_mode) as bouncer:
        yield bouncer


@pytest.fixture
def pooled(bouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An alias of this process for the test database by way of the pooler."""
    settings = {**connections.databases["default"], "HOST": "127.0.0.1", "PORT": str(bouncer.port)}
    monkeypatch.setitem(connections.databases, "pooled", settings)
    yield "pooled"
    # The next test's pooler is another one. (Asked for first, since the test may have made none.)
    del connections[connections["pooled"].alias]


def prepared_statements(url: str) -> list[str]:
    """Names of our statements that are prepared on any of the pooler's server connections, seen through them."""
    return [name for (name,) in sql(url, "SELECT name FROM pg_prepared_statements WHERE name ^@ 'proletarian'")]


# -- Jobs are run ----------------------------------------------------------------------------------------------------


@pool_modes
def test_workers_drain_jobs_of_all_kinds(bouncer: PgBouncer, spawn: Spawn) -> None:
    # On more connections than the pooler has, so that transactions wait, and change from one to another.
    job_types = ["tests/append", "tests/append-atomic", "tests/fail-at-first-attempt"]
    ids = enqueue_many([(job_type, number) for number in range(100) for job_type in job_types])
    sizes = (1, 20)
    workers = [
        spawn("--threads", "3", "--drain", "--batch-size", str(size), "--worker-id", f"by-{size}", url=bouncer.url)
        for size in sizes
    ]

    assert [worker.ends() for worker in workers] == [0, 0]

    assert len(archived(url_of())) == 300
    assert set(archived(url_of())) == {
        (":tests/append", ":success", 1),
        (":tests/append-atomic", ":success", 1),
        (":tests/fail-at-first-attempt", ":success", 2),
    }
    assert sorted(Entry.objects.values_list("job_id", flat=True)) == sorted(ids)
    assert rows("proletarian.job") == []
    assert prepared_statements(bouncer.url) == []
    assert not any("sql-transient-exception" in worker.log or "job-worker-error" in worker.log for worker in workers)


def test_jobs_stay_locked_while_they_run(bouncer: PgBouncer, pooled: str, spawn: Spawn, tmp_path: Path) -> None:
    go = tmp_path / "go"
    started = {"tests/wait-for-file": tmp_path / "one", "tests/wait-for-file-atomic": tmp_path / "other"}
    for job_type, file in started.items():
        enqueue(job_type, {"started": str(file), "go": str(go)})
    worker = spawn("--worker-id", "busy", "--threads", "2", url=bouncer.url)
    eventually(lambda: all(file.exists() for file in started.values()))

    assert unlocked_jobs(url_of()) == []
    assert unlocked_jobs(bouncer.url) == []
    with ClaimConnection(pooled, "second") as second:
        assert claim_due_jobs(second, TABLES, [DEFAULT]) == []
    assert archived(url_of()) == []

    go.touch()
    expected = sorted((f":{job_type}", ":success", 1) for job_type in started)
    eventually(lambda: sorted(archived(url_of())) == expected)
    assert worker.stop() == 0
    assert Entry.objects.count() == 2


@pool_modes
def test_interrupted_jobs_are_free_at_once_and_leave_the_pooler_in_order(
    bouncer: PgBouncer, spawn: Spawn, tmp_path: Path
) -> None:
    job_types = ["tests/busy", "tests/busy-atomic", "tests/busy-async"]
    started = {job_type: tmp_path / job_type.replace("/", "-") for job_type in job_types}
    for job_type, file in started.items():
        enqueue(job_type, str(file))
    worker = spawn("--threads", str(len(job_types)), url=bouncer.url)
    eventually(lambda: all(file.exists() for file in started.values()))
    assert unlocked_jobs(url_of()) == []

    assert worker.stop() == 0

    assert sorted(unlocked_jobs(url_of())) == sorted((f":{job_type}", 0) for job_type in job_types)
    assert worker.log.count("job-interrupted") == len(job_types)
    assert Entry.objects.count() == 2, "what the atomic one wrote is undone, and nothing else"
    # Whoever gets the server's connections next finds no transaction on them.
    in_transaction = (
        "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND state ~ 'in transaction'"
    )
    assert sql(url_of(), in_transaction) == []


# -- The claim's connection ------------------------------------------------------------------------------------------


@pool_modes
def test_a_claim_relies_on_nothing_that_a_session_would_keep(bouncer: PgBouncer, pooled: str) -> None:
    job_id = enqueue("tests/append", "it's \\ a quote")
    with ClaimConnection(pooled, "pooled-1") as claim:
        assert not claim.keeps_session
        for number in range(10):
            [job] = claim_due_jobs(claim, TABLES, [DEFAULT], limit=1 + number % 2)
            claim.send("ROLLBACK")
            assert job.job_id == str(job_id)
        assert prepared_statements(bouncer.url) == []
        claim_due_jobs(claim, TABLES, [DEFAULT])
        assert claim.send("SELECT name FROM pg_prepared_statements") == []
        claim.send(archiving(claim, TABLES, [str(job_id)], "success", None), "COMMIT")
    assert archived(url_of()) == [(":tests/append", ":success", 1)]


@pytest.fixture
def impatient(committed: None) -> Iterator[None]:
    """Sessions that begin from now on may not be idle in a transaction for longer than a minute."""
    name = connections["default"].settings_dict["NAME"]
    sql(url_of(), f'ALTER DATABASE "{name}" SET idle_in_transaction_session_timeout = 60000')
    yield
    sql(url_of(), f'ALTER DATABASE "{name}" RESET idle_in_transaction_session_timeout')


@pool_modes
def test_a_claims_transaction_may_be_idle_for_as_long_as_its_job_runs(
    impatient: None, bouncer: PgBouncer, pooled: str
) -> None:
    enqueue("tests/append", 1)
    with ClaimConnection(pooled, "pooled-1") as claim:
        for _ in range(3):
            claim_due_jobs(claim, TABLES, [DEFAULT])
            assert claim.send("SHOW idle_in_transaction_session_timeout") == [("0",)]
            claim.send("ROLLBACK")
            # Only for that long: the server connection may be another client's next.
            assert sql(bouncer.url, "SHOW idle_in_transaction_session_timeout") == [("1min",)]


# -- Listening -------------------------------------------------------------------------------------------------------


@pool_modes
def test_a_worker_does_not_listen_through_the_pooler_but_polls(bouncer: PgBouncer, spawn: Spawn) -> None:
    with listening(url_of()) as ear:
        spawn(
            *("--worker-id", "pooled"),
            url=bouncer.url,
            settings="tests.live.given_settings",
            PROLETARIAN=json.dumps({"IDLE_POLLING_INTERVAL": FOR_EVER}),
        )
        for number in (1, 2, 3):
            enqueue("tests/append", number)
            eventually(lambda number=number: len(archived(url_of())) == number)
        assert ear.heard() == []
    assert holders(url_of()) == set()
    assert not asleep(url_of(), "pooled")
    # The ear's own takes a moment to end.
    eventually(lambda: not sql(url_of(), "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"))


def test_a_worker_that_listens_directly_is_woken(bouncer: PgBouncer, spawn: Spawn) -> None:
    worker = spawn(
        *("--worker-id", "pooled"),
        url=bouncer.url,
        settings="tests.live.given_settings",
        PROLETARIAN=json.dumps({"IDLE_POLLING_INTERVAL": FOR_EVER, "LISTEN_DATABASE": "direct"}),
        DIRECT_URL=url_of(),
    )
    for number in (1, 2, 3):
        eventually(lambda: holders(url_of()) == {"pooled-listener"} and asleep(url_of(), "pooled"))
        enqueue("tests/append", number)
        eventually(lambda number=number: len(archived(url_of())) == number)
    eventually(lambda: asleep(url_of(), "pooled"))
    assert worker.stop() == 0
    assert holders(url_of()) == set()


def test_a_pooler_and_a_worker_with_the_pages_settings_go_together(
    committed: None, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = REPOSITORY / "docs" / "how-to" / "pgbouncer.md"
    [shown], [code] = blocks(page, "ini"), blocks(page, "python")
    pooler = configparser.ConfigParser()
    pooler.read_string(shown.text)
    monkeypatch.setenv("PASSWORD", "secret")
    settings: dict[str, Any] = {"os": os}
    exec(compile(code.text, str(code), "exec"), settings)
    assert settings["DATABASES"]["default"]["PORT"] == pooler["pgbouncer"]["listen_port"]
    past_it = pooler["databases"]["shop"]
    assert all(settings["DATABASES"]["direct"][name] in past_it for name in ("HOST", "PORT", "NAME"))

    with PgBouncer(pooler["pgbouncer"]["pool_mode"], pooler["pgbouncer"]) as bouncer:
        worker = spawn(
            *("--worker-id", "pooled"),
            url=bouncer.url,
            settings="tests.live.given_settings",
            PROLETARIAN=json.dumps({**settings["PROLETARIAN"], "IDLE_POLLING_INTERVAL": FOR_EVER}),
            DIRECT_URL=url_of(),
        )
        eventually(lambda: asleep(url_of(), "pooled"))
        enqueue("tests/append", 1)
        eventually(lambda: len(archived(url_of())) == 1)
        assert worker.stop() == 0


def test_an_enqueue_through_the_pooler_wakes(pooled: str, run_worker: RunWorker, settings: Any) -> None:
    settings.PROLETARIAN = {"IDLE_POLLING_INTERVAL": FOR_EVER}
    run_worker(worker_id="direct")
    with web_server(pooled) as connection:
        for number in (1, 2, 3):
            eventually(lambda: asleep(url_of(), "direct"))
            insert_job(connection, TABLES, new_job(), None)
            eventually(lambda number=number: len(archived(url_of())) == number)


@pool_modes
def test_enqueue_prepares_nothing_through_a_pooler(bouncer: PgBouncer, pooled: str) -> None:
    with web_server(pooled) as one, web_server(pooled) as other:
        for connection in (one, other) * 3 * PREPARED_AFTER:
            assert insert_job(connection, TABLES, new_job(), None)
    assert sql(bouncer.url, "SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%proletarian%'") == []
    assert len(rows("proletarian.job")) == 6 * PREPARED_AFTER


@contextmanager
def web_server(alias: str) -> Iterator[BaseDatabaseWrapper]:
    """A connection such as a web server's own."""
    with closing(connections[alias].copy(alias=f"{alias} (a web server's)")) as connection:
        yield connection


def new_job() -> JobRow:
    return JobRow(uuid4(), ":proletarian/default", ":tests/append", "1", None, None)
