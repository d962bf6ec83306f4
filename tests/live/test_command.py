"""`manage.py proletarian_worker`: its options, and what it says about a database that it can't work with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_proletarian import PlainName, enqueue, enqueue_many, job_handler
from django_proletarian.new_jobs import NewJob
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.live.processes import ROOT, WorkerProcess, archived, claims_of, sql, unlocked_jobs, url_of
from tests.scratch import Scratch

Spawn = Callable[..., WorkerProcess]


def texts() -> list[str]:
    """What handlers wrote, in the order in which they did."""
    return list(Entry.objects.order_by("pk").values_list("text", flat=True))


@pytest.fixture
def write(committed: None) -> None:
    job_handler("tests/write")(lambda payload: Entry.objects.create(text=payload))


# -- Options ---------------------------------------------------------------------------------------------------------


def test_drain_runs_what_is_due_and_ends(write: None) -> None:
    enqueue_many([NewJob("tests/write", str(number)) for number in range(20)])
    call_command("proletarian_worker", drain=True, threads=4)
    assert sorted(texts()) == sorted(str(number) for number in range(20))
    assert rows("proletarian.job") == []


def test_max_jobs_ends_it_after_so_many(write: None) -> None:
    enqueue_many([NewJob("tests/write", str(number)) for number in range(20)])
    call_command("proletarian_worker", max_jobs=6, threads=4)
    assert len(texts()) == 6
    assert len(unlocked_jobs(url_of())) == 14


def test_queues_are_drained_in_the_order_given(write: None) -> None:
    for number in range(3):
        for queue in ("low", "high", "other"):
            enqueue("tests/write", f"{queue} {number}", queue=queue)
    call_command("proletarian_worker", "--queue", "high", "--queue", "low", "--drain")
    assert texts() == ["high 0", "high 1", "high 2", "low 0", "low 1", "low 2"]
    assert len(rows("proletarian.job")) == 3


def test_a_job_that_comes_to_the_first_queue_meanwhile_is_next(write: None) -> None:
    @job_handler("tests/urge")
    def urge(payload: str) -> None:
        Entry.objects.create(text=payload)
        enqueue("tests/write", "urgent", queue="high")

    enqueue("tests/urge", "low 0", queue="low")
    enqueue("tests/write", "low 1", queue="low")
    call_command("proletarian_worker", "--queue", "high", "--queue", "low", "--drain")
    assert texts() == ["low 0", "urgent", "low 1"]


def test_a_queue_in_double_quotes_is_the_one_stored_without_a_colon(write: None) -> None:
    enqueue("tests/write", "keyword", queue="mail")
    enqueue("tests/write", "plain", queue=PlainName("mail"))
    call_command("proletarian_worker", "--queue", '"mail"', "--drain")
    assert texts() == ["plain"]
    call_command("proletarian_worker", "--queue", "mail", "--drain")
    assert texts() == ["plain", "keyword"]


@pytest.mark.django_db(
    transaction=True, databases=["default", "other"], available_apps=["django_proletarian", "tests.app"]
)
def test_the_queue_may_live_in_another_database(write: None) -> None:
    other = url_of("other")
    sql(other, "TRUNCATE proletarian.job, proletarian.archived_job")
    enqueue("tests/write", "here")
    enqueue("tests/write", "there", using="other")

    call_command("proletarian_worker", database="other", drain=True)

    assert texts() == ["there"]
    assert archived(other) == [(":tests/write", ":success", 1)]
    assert unlocked_jobs(url_of()) == [(":tests/write", 0)]
    sql(other, "TRUNCATE proletarian.archived_job")


@pytest.mark.django_db(
    transaction=True, databases=["default", "other"], available_apps=["django_proletarian", "tests.app"]
)
def test_an_atomic_handler_shares_the_transaction_of_the_database_that_holds_its_queue(committed: None) -> None:
    other = url_of("other")
    sql(other, "TRUNCATE proletarian.job, proletarian.archived_job")

    @job_handler("tests/both", atomic=True)
    def both(payload: object) -> None:
        Entry.objects.using("other").create(text="goes with the job")
        Entry.objects.using("default").create(text="stays")
        raise ValueError

    enqueue("tests/both", using="other")
    call_command("proletarian_worker", database="other", drain=True)

    assert archived(other) == [(":tests/both", ":failure", 1)]
    assert sql(other, "SELECT text FROM app_entry") == []
    assert texts() == ["stays"]
    sql(other, "TRUNCATE proletarian.archived_job")


def test_the_servers_list_of_connections_shows_the_workers_id(committed: None) -> None:
    seen: list[str] = []

    @job_handler("tests/look")
    def look(payload: object) -> None:
        found = sql(url_of(), "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()")
        seen.extend(name for (name,) in found if name.startswith("mail"))

    enqueue("tests/look")
    call_command("proletarian_worker", worker_id="mail server 1", drain=True)
    assert seen == ["mail server 1-1"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--threads", "0"], "threads is 0"),
        (["--max-jobs", "0"], "max_jobs is 0"),
        (["--polling-interval", "0"], "polling_interval is 0"),
        (["--polling-interval", "nan"], "polling_interval is nan"),
        (["--shutdown-timeout", "-1"], "shutdown_timeout is -1"),
        (["--database", "nowhere"], "nowhere"),
        (["--database", "sqlite"], 'Database "sqlite" is sqlite'),
        (["--queue", ""], "queue"),
    ],
)
def test_an_option_that_can_not_be_is_named(committed: None, arguments: list[str], named: str) -> None:
    with pytest.raises(CommandError, match=named):
        call_command("proletarian_worker", "--drain", *arguments)


def test_without_a_logging_configuration_the_log_is_shown(committed: None, spawn: Spawn) -> None:
    enqueue("tests/append", "1")
    talkative, quiet = spawn("--max-jobs", "1"), spawn("--drain", "--verbosity", "0", "--queue", "empty")
    assert (talkative.ends(), quiet.ends()) == (0, 0)
    assert "INFO proletarian.worker/handling-job" in talkative.log
    assert "polling-for-jobs" not in talkative.log
    assert quiet.log == ""


# -- Databases that it can't work with -------------------------------------------------------------------------------


def test_missing_tables_are_told_and_the_exit_code_is_1(scratch: Scratch) -> None:
    said = scratch.manage("proletarian_worker", "--threads", "4", exit_code=1)
    assert 'CommandError: The tables are missing in database "default"' in said
    assert "manage.py migrate django_proletarian --database default" in said


@pytest.fixture
def stranger(committed: None) -> Iterator[str]:
    """A role that may log in and nothing else."""
    role = f"stranger_{os.getpid()}"
    sql(url_of(), f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    yield role
    sql(url_of(), f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_missing_right_is_told_and_the_exit_code_is_1(stranger: str, spawn: Spawn) -> None:
    worker = spawn("--threads", "4", url=url_of(user=stranger))
    assert worker.ends() == 1
    assert 'CommandError: The role that database "default" is used as lacks a right' in worker.log
    assert "SELECT and INSERT on proletarian.archived_job" in worker.log


def test_a_right_that_is_missing_at_the_end_of_a_job_leaves_it_in_the_queue(
    write: None, stranger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(
        url_of(),
        f"GRANT USAGE ON SCHEMA proletarian TO {stranger}; "
        f"GRANT SELECT, UPDATE, DELETE ON proletarian.job TO {stranger}; GRANT ALL ON ALL TABLES IN SCHEMA public "
        f"TO {stranger}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {stranger}",
    )
    enqueue("tests/write", "written")
    before = rows("proletarian.job")
    connection.close()
    # Every connection that is opened from here on, in any thread, logs in as the stranger.
    with monkeypatch.context() as login:
        login.setitem(connection.settings_dict, "USER", stranger)
        login.setitem(connection.settings_dict, "PASSWORD", stranger)
        with pytest.raises(CommandError, match="lacks a right: permission denied for table archived_job"):
            call_command("proletarian_worker")
        connection.close()
    assert rows("proletarian.job") == before
    eventually(lambda: unlocked_jobs(url_of()))


def test_the_originals_rights_are_enough(write: None, stranger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of proletarian/database/postgresql/tables.sql; TRUNCATE left out.
    sql(
        url_of(),
        f"GRANT USAGE ON SCHEMA proletarian TO {stranger}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON proletarian.job TO {stranger}; "
        f"GRANT SELECT, INSERT ON proletarian.archived_job TO {stranger}; GRANT ALL ON ALL TABLES IN SCHEMA public "
        f"TO {stranger}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {stranger}",
    )
    connection.close()
    with monkeypatch.context() as login:
        login.setitem(connection.settings_dict, "USER", stranger)
        login.setitem(connection.settings_dict, "PASSWORD", stranger)
        enqueue("tests/write", "written")
        call_command("proletarian_worker", drain=True)
        connection.close()
    assert archived(url_of()) == [(":tests/write", ":success", 1)]


# -- Development -----------------------------------------------------------------------------------------------------

RELOADED_JOBS = """
from django_proletarian import job_handler
from tests.app.models import Entry

@job_handler("reloaded/write")
def write(payload):
    Entry.objects.create(text="%s")
"""


def test_reload_starts_anew_when_a_handler_changes(committed: None, spawn: Spawn, tmp_path: Path) -> None:
    app = tmp_path / "reloaded"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "jobs.py").write_text(RELOADED_JOBS % "old")
    (tmp_path / "reloaded_settings.py").write_text(
        'from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, "reloaded"]\n'
    )
    worker = spawn(
        "--reload",
        "--worker-id",
        "developer",
        settings="reloaded_settings",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}",
    )
    enqueue("reloaded/write")
    eventually(lambda: texts() == ["old"])

    (app / "jobs.py").write_text(RELOADED_JOBS % "new, and longer")

    def is_reloaded() -> bool:
        # Again and again, since the reloader sees changes only after its first look, which nothing tells.
        (app / "jobs.py").touch()
        if not rows("proletarian.job"):
            enqueue("reloaded/write")
        return "new, and longer" in texts()

    eventually(is_reloaded)
    assert worker.stop() == 0
    eventually(lambda: not claims_of(url_of(), "developer"))
