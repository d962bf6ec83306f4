"""`check --deploy`: one test for each of its checks, by id."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import override_settings

from django_proletarian import enqueue
from django_proletarian.deployment_checks import is_foreign
from django_proletarian.serializers import JSONSerializer, TransitSerializer

KEPT = {"RETENTION": {"success": timedelta(days=7)}}
WORKER = """
INSERT INTO proletarian.worker
VALUES (gen_random_uuid(), 'mail-1', 'host', 1, %s::jsonb, 1, 1, '1.0', now(), now(), '[]', 0, 0)
"""


def found(databases: Sequence[str] | None = ("default",), **settings: object) -> dict[str, Any]:
    """What the checks of a deployment say, by the number of each; without W005, which every test would have."""
    with override_settings(PROLETARIAN={**KEPT, **settings}):
        messages = run_checks(include_deployment_checks=True, databases=databases)
    ours = [message for message in messages if str(message.id).startswith("django_proletarian.")]
    return {str(message.id).partition(".")[2]: message for message in ours if "W005" not in str(message.id)}


def sql(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


@pytest.mark.django_db
def test_a_sound_deployment_has_no_warnings() -> None:
    enqueue("shop/mail", {"to": "a@b.c"})
    assert found() == {}


def test_no_database_is_asked_unless_one_is_named() -> None:
    assert found(databases=None) == {}  # and pytest-django would refuse the connection


@pytest.mark.django_db
def test_the_checks_belong_to_check_deploy_with_a_database() -> None:
    def check(*arguments: str) -> str:
        out = io.StringIO()
        call_command("check", *arguments, "--fail-level", "CRITICAL", stderr=out, stdout=out)
        return out.getvalue()

    sql("ALTER TABLE proletarian.worker RENAME TO was_worker")
    assert "proletarian.W002" in check("--deploy", "--database", "default")
    assert "proletarian.W002" not in check("--deploy")
    assert "proletarian.W002" not in check("--database", "default")


@pytest.mark.django_db
def test_w002_a_table_is_missing() -> None:
    sql("ALTER TABLE proletarian.worker RENAME TO was_worker")
    sql("ALTER TABLE proletarian.job RENAME TO was_job")
    said = found()["W002"]
    assert said.msg == 'Database "default" lacks proletarian.job and proletarian.worker.'
    assert "manage.py migrate django_proletarian --database default" in said.hint


def test_w002_a_database_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any) -> None:
    nowhere = {**connections.settings["default"], "HOST": "127.0.0.1", "PORT": 1, "NAME": "nowhere"}
    monkeypatch.setitem(connections.settings, "nowhere", nowhere)
    with django_db_blocker.unblock():
        said = found(databases=["nowhere"])["W002"]
    assert 'Database "nowhere" could not be asked' in said.msg
    assert 'DATABASES["nowhere"]' in said.hint


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("drop", "table", "columns"),
    [
        ("proletarian.job_queue_process_at", "job", "queue, process_at"),
        ("proletarian.archived_job_finished_at", "archived_job", "finished_at"),
        ("proletarian.job_attempt_job_id", "job_attempt", "job_id"),
    ],
)
def test_w003_an_index_is_missing(drop: str, table: str, columns: str) -> None:
    sql(f"DROP INDEX {drop}")
    said = found()["W003"]
    assert f'proletarian.{table} in database "default" has no index on ({columns})' in said.msg
    assert f'CREATE INDEX CONCURRENTLY ON "proletarian"."{table}" ({columns});' in said.hint
    sql(said.hint.partition(": ")[2].replace("CONCURRENTLY ", ""))  # which no transaction may
    assert found() == {}


@pytest.mark.django_db
def test_w003_an_index_that_was_left_half_built_is_none() -> None:
    sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'proletarian.job_queue_process_at'::regclass")
    assert "W003" in found()


@pytest.mark.django_db
def test_w004_the_role_lacks_a_privilege() -> None:
    sql("CREATE ROLE mere_worker_of_the_tests")  # gone when the test's transaction is rolled back
    sql("GRANT USAGE ON SCHEMA proletarian TO mere_worker_of_the_tests")
    sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA proletarian TO mere_worker_of_the_tests")
    sql("REVOKE UPDATE, DELETE ON proletarian.job FROM mere_worker_of_the_tests")
    sql("SET LOCAL ROLE mere_worker_of_the_tests")
    said = found()["W004"]
    assert (
        'Role "mere_worker_of_the_tests" of database "default" may not UPDATE and DELETE in proletarian.job' in said.msg
    )
    assert said.hint.startswith('GRANT UPDATE, DELETE ON "proletarian"."job" TO "mere_worker_of_the_tests";')
    sql("RESET ROLE")
    sql(said.hint.partition(" (")[0])
    sql("SET LOCAL ROLE mere_worker_of_the_tests")
    assert found() == {}


@pytest.mark.django_db
def test_w004_the_role_may_not_use_the_schema() -> None:
    sql("CREATE ROLE mere_worker_of_the_tests")
    sql("GRANT ALL ON ALL TABLES IN SCHEMA proletarian TO mere_worker_of_the_tests")
    sql("SET LOCAL ROLE mere_worker_of_the_tests")
    said = found()["W004"]
    assert "may not look in proletarian." in said.msg
    assert said.hint.startswith('GRANT USAGE ON SCHEMA "proletarian" TO "mere_worker_of_the_tests"; (')


@pytest.mark.django_db
def test_w004_retention_takes_the_right_to_delete_from_the_archive() -> None:
    sql("CREATE ROLE mere_worker_of_the_tests")
    sql("GRANT USAGE ON SCHEMA proletarian TO mere_worker_of_the_tests")
    sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA proletarian TO mere_worker_of_the_tests")
    sql("REVOKE DELETE ON proletarian.archived_job FROM mere_worker_of_the_tests")
    sql("SET LOCAL ROLE mere_worker_of_the_tests")
    assert "may not DELETE in proletarian.archived_job" in found()["W004"].msg
    assert "W004" not in found(RETENTION={})


@pytest.mark.django_db
def test_w005_no_worker_has_ever_been_seen() -> None:
    with override_settings(PROLETARIAN=KEPT):

        def says() -> list[str]:
            messages = run_checks(include_deployment_checks=True, databases=["default"])
            return [message.msg for message in messages if message.id == "django_proletarian.W005"]

        assert says() == [
            'No worker has ever been seen on database "default": jobs are enqueued, and nobody runs them.'
        ]
        sql(WORKER, "[]")
        assert says() == []


def test_w006_the_archive_grows_for_ever() -> None:
    said = found(databases=None, RETENTION={})["W006"]
    assert "archived jobs are kept for ever" in said.msg
    assert "timedelta(days=7)" in said.hint


@pytest.mark.django_db
def test_w007_jobs_wait_that_another_serializer_wrote() -> None:
    job_id = enqueue("shop/mail", {"to": "a@b.c"})
    said = found(SERIALIZER="django_proletarian.serializers.JSONSerializer")["W007"]
    assert '1 of 1 jobs that wait in database "default" have payloads that JSONSerializer did not write' in said.msg
    assert str(job_id) in said.msg
    assert "a@b.c" not in said.msg
    assert "--drain" in said.hint


class Rot13:
    def encode(self, value: object) -> str:
        return f"rot13 {value}"

    def decode(self, text: str) -> object:
        if not text.startswith("rot13"):
            raise KeyError(text)
        return text[6:]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "foreign"),
    [
        (TransitSerializer(), TransitSerializer(), {"to": 1}, False),
        (TransitSerializer(), TransitSerializer(keyword_keys=False), {"to": 1}, False),
        (TransitSerializer(), TransitSerializer(), None, False),
        (TransitSerializer(), JSONSerializer(), {"to": 1}, True),
        (TransitSerializer(), JSONSerializer(), {1, 2}, True),
        (JSONSerializer(), JSONSerializer(), {"to": 1}, False),
        (JSONSerializer(), JSONSerializer(), ["^ ", "text"], False),
        (JSONSerializer(), TransitSerializer(), {"to": 1}, True),
        (JSONSerializer(), TransitSerializer(), [1, 2], False),  # both write it alike
        (Rot13(), JSONSerializer(), "text", True),
        (JSONSerializer(), Rot13(), "text", True),
        (Rot13(), Rot13(), "text", False),
    ],
)
def test_a_payload_is_foreign_if_its_reader_would_not_read_what_was_written(
    writer: Any, reader: Any, value: object, foreign: bool
) -> None:
    assert is_foreign(writer.encode(value), reader) is foreign


@pytest.mark.django_db
def test_w008_threads_want_more_connections_than_the_server_has() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('max_connections')::int")
        [most] = cursor.fetchone()
    said = found(THREADS=most)["W008"]
    assert (
        f"A worker with PROCESSES = 1 and THREADS = {most} opens up to {2 * most + 4} connections" in said.msg
    )  # handlers of the tests have leases
    assert "max_connections" in said.hint
    sql("ALTER ROLE CURRENT_USER CONNECTION LIMIT 8")
    assert 'database "default" allows 8 to all' in found(PROCESSES=2, THREADS=2)["W008"].msg
    assert found(THREADS=2) == {}


@pytest.mark.django_db
def test_w009_jobs_are_due_in_a_queue_that_no_living_worker_works_on() -> None:
    sql(WORKER, '["shop/mail"]')
    enqueue("shop/receipt", queue="shop/mail")
    enqueue("shop/receipt", queue="shop/mail", priority=5)
    enqueue("shop/receipt", queue="shop/mial")
    enqueue("shop/receipt", queue="reports", process_in=timedelta(days=1))
    assert found() == {}  # not yet
    sql("UPDATE proletarian.job SET process_at = process_at - interval '5 minutes'")
    said = found()["W009"]
    assert 'Queue shop/mial in database "default" has jobs that have been due for 5m' in said.msg
    assert said.hint.startswith('Did you mean "shop/mail"? ')
    assert "manage.py proletarian_worker --queue 'shop/mial'" in said.hint
    sql("UPDATE proletarian.worker SET heartbeat_at = now() - interval '1 minute'")
    assert "W009" in found()


@pytest.mark.django_db
def test_databases_that_hold_no_jobs_are_left_alone() -> None:
    assert found(databases=["sqlite"]) == {}


@pytest.mark.django_db
def test_wrong_settings_are_told_by_their_own_checks_alone() -> None:
    assert list(found(THREADS=0)) == ["E013"]


@pytest.mark.django_db
@override_settings(PROLETARIAN={})
def test_fail_level_makes_a_release_stop() -> None:
    with pytest.raises(CommandError, match=r"django_proletarian\.W005"):
        call_command("check", "--deploy", "--fail-level", "WARNING", "--tag", "database", "--database", "default")
