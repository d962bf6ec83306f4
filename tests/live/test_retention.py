"""What proletarian_prune and workers delete from the archive, what they leave, and who may."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from django_proletarian import QueueWorker, enqueue, job_handler, retention
from django_proletarian.connection import PrivateConnection
from django_proletarian.management.commands import proletarian_prune
from django_proletarian.retention import Old, prune_batch
from django_proletarian.tables import Tables
from tests.conftest import eventually, rows
from tests.live.events import Events
from tests.live.processes import archived, sql, url_of

pytestmark = pytest.mark.usefixtures("committed")

TABLES = Tables()
RunWorker = Callable[..., QueueWorker]


def archive(days: float, number: int = 1, *, status: str = "success", queue: str = "proletarian/default") -> None:
    """Jobs that finished so many days ago, each a second after the one before."""
    sql(
        url_of(),
        "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), %s, ':shop/mail', '1', 1, now(), now(), %s, "
        "now() - %s * interval '1 day' + number * interval '1 second' FROM generate_series(1, %s) AS number",
        (f":{queue}", f":{status}", days, number),
    )


def prune(*arguments: str, out: io.StringIO | None = None) -> str:
    out = out or io.StringIO()
    call_command("proletarian_prune", *arguments, stdout=out)
    return out.getvalue()


def left() -> dict[tuple[str, str], int]:
    """How many jobs the archive has of each queue and status."""
    found: dict[tuple[str, str], int] = {}
    for row in rows("proletarian.archived_job", "queue, status"):
        key = (row["queue"].removeprefix(":"), row["status"].removeprefix(":"))
        found[key] = found.get(key, 0) + 1
    return found


# -- The command -----------------------------------------------------------------------------------------------------


def test_what_is_old_enough_is_deleted_in_batches_and_the_rest_stays() -> None:
    archive(31, 25)
    archive(29, 5)
    assert prune("--older-than", "30d", "--batch-size", "10") == (
        "25 archived jobs pruned that finished more than 30d ago.\n"
    )
    assert left() == {("proletarian/default", "success"): 5}
    assert prune("--older-than", "0") == "5 archived jobs pruned that finished more than 0s ago.\n"
    assert left() == {}


def test_attempts_go_with_their_jobs_and_stay_for_jobs_that_wait_again() -> None:
    archive(31, 3)
    archive(1)
    sql(
        url_of(),
        "INSERT INTO proletarian.job_attempt (job_id, attempt, started_at, finished_at, outcome) "
        "SELECT job_id, attempt, finished_at, finished_at, 'retry' "
        "FROM proletarian.archived_job CROSS JOIN generate_series(1, 2) AS attempt",
    )
    [[again]] = sql(
        url_of(),
        "INSERT INTO proletarian.job SELECT job_id, queue, job_type, payload, 0, now(), now() "
        "FROM proletarian.archived_job ORDER BY finished_at LIMIT 1 RETURNING job_id",
    )
    prune("--older-than", "30d")
    kept = {row["job_id"] for row in rows("proletarian.job_attempt", "job_id")}
    assert kept == {again, *(row["job_id"] for row in rows("proletarian.archived_job", "job_id"))}
    assert len(kept) == 2


def test_archived_jobs_are_pruned_where_there_is_no_table_of_attempts() -> None:
    archive(31, 3)
    sql(url_of(), "ALTER TABLE proletarian.job_attempt RENAME TO elsewhere")
    try:
        prune("--older-than", "30d")
    finally:
        sql(url_of(), "ALTER TABLE proletarian.elsewhere RENAME TO job_attempt")
    assert left() == {}


def test_status_and_queues_choose_however_few_rows_of_a_batch_they_mean() -> None:
    for queue in ("mail", "billing", "reports"):
        archive(3, 11, queue=queue)
        archive(3, 2, queue=queue, status="failure")
    said = prune(
        "--older-than", "1d", "--status", "failure", "--queue", "mail", "--queue", "reports", "--batch-size", "3"
    )
    assert said == "4 archived jobs pruned that finished more than 1d ago with status failure in mail, reports.\n"
    assert left() == {
        ("mail", "success"): 11,
        ("billing", "success"): 11,
        ("reports", "success"): 11,
        ("billing", "failure"): 2,
    }


def test_a_queue_is_pruned_with_all_its_priorities_but_not_one_that_is_only_called_so(settings: Any) -> None:
    settings.PROLETARIAN = {"QUEUES": ["mail-2"]}
    for queue in ("mail", "mail+10", "mail-5", "mail-2", "mailing", "mail+101"):
        archive(3, queue=queue)
    said = prune("--older-than", "1d", "--queue", "mail")
    assert said == "3 archived jobs pruned that finished more than 1d ago in mail.\n"
    assert left() == {("mail-2", "success"): 1, ("mailing", "success"): 1, ("mail+101", "success"): 1}


def test_jobs_that_all_finished_at_one_time_are_walked_past_in_batches() -> None:
    archive(3, 20, queue="mail")
    archive(3, 20, queue="billing")
    sql(url_of(), "UPDATE proletarian.archived_job SET finished_at = '2026-01-01 12:00:00.123457+00'")
    prune("--older-than", "1d", "--queue", "billing", "--batch-size", "7")
    assert left() == {("mail", "success"): 20}


def test_the_oldest_go_first() -> None:
    archive(10, 3)
    archive(20, 3)
    before = [at for (at,) in sql(url_of(), "SELECT finished_at FROM proletarian.archived_job ORDER BY finished_at")]
    with PrivateConnection("default", "test") as private:
        batch = prune_batch(private, TABLES, Old(older_than=86400), None, batch_size=4)
    assert batch is not None
    assert (batch.pruned, batch.is_last) == (4, False)
    after = [at for (at,) in sql(url_of(), "SELECT finished_at FROM proletarian.archived_job ORDER BY finished_at")]
    assert after == before[4:]


def test_a_dry_run_counts_and_deletes_nothing() -> None:
    archive(3, 7, queue="mail")
    archive(3, 2)
    archive(0, 2)
    said = prune("--older-than", "1d", "--queue", "mail", "--dry-run")
    assert said == "7 archived jobs would be pruned that finished more than 1d ago in mail.\n"
    assert sum(left().values()) == 11


def test_a_dry_run_over_very_many_says_that_it_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST_COUNTED", 100)
    archive(3, 300)
    archive(3, 700, status="failure")
    sql(url_of(), "ANALYZE proletarian.archived_job")
    said = prune("--older-than", "1d", "--status", "failure", "--dry-run")
    assert said.startswith("About 700 archived jobs would be pruned that finished more than 1d ago with status failure")
    assert "estimate" in said


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_shown_how_far_it_is() -> None:
    archive(3, 25)
    said = prune("--older-than", "1d", "--batch-size", "10", out=Terminal())
    assert said == (
        "\r10 pruned …\r20 pruned …\r25 pruned …\r25 archived jobs pruned that finished more than 1d ago.\n"
    )


def test_a_job_that_ran_again_meanwhile_is_kept() -> None:
    archive(3, 1)
    replace = "UPDATE proletarian.archived_job SET finished_at = now()"
    with psycopg.connect(url_of()) as worker, PrivateConnection("default", "test") as private:
        worker.execute(replace)
        # The row is locked: the prune gives up before the server would take either for a deadlock.
        with pytest.raises(psycopg.errors.LockNotAvailable):
            prune_batch(private, TABLES, Old(older_than=86400), None)
    prune("--older-than", "1d")
    assert sum(left().values()) == 1


def test_the_command_comes_back_for_a_row_that_was_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    archive(3, 1)
    with psycopg.connect(url_of()) as other:
        other.execute("SELECT FROM proletarian.archived_job FOR UPDATE")
        monkeypatch.setattr(proletarian_prune, "sleep", lambda seconds: other.rollback())
        assert prune("--older-than", "1d").startswith("1 archived job pruned")


def test_while_another_session_prunes_nothing_is_deleted() -> None:
    archive(3, 1)
    with psycopg.connect(url_of()) as other, PrivateConnection("default", "test") as private:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (retention._lock_key(TABLES),))
        assert prune_batch(private, TABLES, Old(older_than=0), None) is None
        other.commit()
        assert prune_batch(private, TABLES, Old(older_than=0), None) is not None
    assert left() == {}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--older-than"),
        (["--older-than", "30 days"], "'30 days' is no duration. Write it as 30d"),
        (["--older-than", "1d", "--batch-size", "0"], "'0' is not a whole number from 1 up"),
        (["--older-than", "1d", "--status", "done"], "invalid choice: 'done'"),
        (["--older-than", "1d", "--database", "nowhere"], 'There is no database "nowhere"'),
        (["--older-than", "1d", "--database", "sqlite"], 'Database "sqlite" is sqlite'),
    ],
)
def test_an_option_that_can_not_be_is_named(arguments: list[str], named: str) -> None:
    with pytest.raises(CommandError, match=named):
        prune(*arguments)


def test_without_an_index_it_says_what_to_run() -> None:
    archive(3)
    sql(url_of(), "DROP INDEX proletarian.archived_job_finished_at")
    with pytest.raises(CommandError, match="CREATE INDEX CONCURRENTLY") as told:
        prune("--older-than", "1d")
    sql(url_of(), str(told.value).split("build one: ")[1])
    assert prune("--older-than", "1d").startswith("1 archived job pruned")


@pytest.fixture
def original(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """From here on, every new connection logs in as a role that has the original's rights."""
    role = f"original_{os.getpid()}"
    sql(
        url_of(),
        f"CREATE ROLE {role} LOGIN PASSWORD '{role}'; GRANT USAGE ON SCHEMA proletarian TO {role};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON proletarian.job TO {role};"
        f"GRANT SELECT, INSERT, TRUNCATE ON proletarian.archived_job TO {role}",
    )
    owners = url_of()
    connection.close()
    with monkeypatch.context() as login:
        login.setitem(connection.settings_dict, "USER", role)
        login.setitem(connection.settings_dict, "PASSWORD", role)
        yield owners
        connection.close()
    sql(url_of(), f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_role_that_may_not_delete_is_told_who_may(original: str) -> None:
    with pytest.raises(CommandError, match=r"permission denied for table archived_job.*GRANT SELECT, DELETE ON"):
        prune("--older-than", "1d")


# -- Beside a running worker -----------------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look for old jobs many times a second, and delete a few at a time."""
    monkeypatch.setattr(retention, "INTERVAL", 0.05)
    monkeypatch.setattr(retention.prune_batch, "__kwdefaults__", {"place": None, "batch_size": 10})


KEPT = {"success": timedelta(days=7), "failure": timedelta(days=90)}


@override_settings(PROLETARIAN={"RETENTION": KEPT})
def test_a_worker_deletes_what_each_status_lets_go(hasty: None, run_worker: RunWorker, events: Events) -> None:
    archive(95, 15, status="failure")
    archive(80, 35, status="failure")  # to walk past, each time
    archive(10, 35)
    archive(6, 5)
    run_worker()
    eventually(lambda: left() == {("proletarian/default", "failure"): 35, ("proletarian/default", "success"): 5})
    eventually(lambda: len(events["archived-jobs-pruned"]) == 2)
    pruned = {(data["status"], data["pruned"]) for data in events["archived-jobs-pruned"]}
    assert pruned == {("success", 35), ("failure", 15)}
    # Jobs that become old enough later are found too.
    archive(8, 3)
    eventually(lambda: left()[("proletarian/default", "success")] == 5)


@override_settings(PROLETARIAN={"RETENTION": KEPT})
def test_a_worker_that_is_never_idle_prunes_too(hasty: None, run_worker: RunWorker) -> None:
    @job_handler("tests/again")
    def again(payload: object) -> None:
        enqueue("tests/again")

    archive(10, 100)
    enqueue("tests/again")
    worker = run_worker()
    eventually(
        lambda: (
            not sql(url_of(), "SELECT 1 FROM proletarian.archived_job WHERE finished_at < now() - interval '7 days'")
        )
    )
    assert worker.stop()


@override_settings(PROLETARIAN={"RETENTION": KEPT})
def test_workers_that_may_not_delete_say_so_once_and_work_on(
    hasty: None, original: str, run_worker: RunWorker, events: Events
) -> None:
    job_handler("tests/pass")(lambda payload: None)
    sql(
        original,
        "INSERT INTO proletarian.archived_job SELECT gen_random_uuid(), ':q', ':t', '1', 1, now(), now(), "
        "':success', now() - interval '8 days'",
    )
    worker = run_worker()
    eventually(lambda: events["retention-error"])
    assert worker._pruner is not None
    worker._pruner._thread.join(20)  # it has ended, and will say nothing more
    assert not worker._pruner._thread.is_alive()
    [told] = events["retention-error"]
    assert "GRANT SELECT, DELETE ON proletarian.archived_job" in str(told["exception"])
    enqueue("tests/pass")
    eventually(lambda: (":tests/pass", ":success", 1) in archived(original))


@override_settings(PROLETARIAN={"RETENTION": KEPT})
def test_a_locked_row_keeps_nobody_and_is_deleted_when_it_is_free(
    hasty: None, run_worker: RunWorker, events: Events
) -> None:
    archive(10, 3)
    with psycopg.connect(url_of()) as other:
        other.execute("SELECT FROM proletarian.archived_job FOR UPDATE")
        run_worker(worker_id="pruner")
        waits = (
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pruner-retention' AND wait_event_type = 'Lock'"
        )
        eventually(lambda: sql(url_of(), waits))
        eventually(lambda: not sql(url_of(), waits))  # given up, though the row is locked still
    eventually(lambda: left() == {})
    assert events["retention-error"] == []


def test_without_the_setting_nothing_is_deleted_and_no_thread_runs(run_worker: RunWorker) -> None:
    assert run_worker()._pruner is None
