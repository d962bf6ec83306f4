"""The schema: made, adopted, undone; under other names, on other databases, and without migrations."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import eventually
from tests.scratch import Scratch, scratch_database

CONTRACT = {
    "job": {
        "job_id": "uuid",
        "queue": "text",
        "job_type": "text",
        "payload": "text",
        "attempts": "integer",
        "enqueued_at": "timestamp with time zone",
        "process_at": "timestamp with time zone",
    }
}
CONTRACT["archived_job"] = {**CONTRACT["job"], "status": "text", "finished_at": "timestamp with time zone"}
INDEXES = {
    "job_pkey": "CREATE UNIQUE INDEX job_pkey ON proletarian.job USING btree (job_id)",
    "job_queue_process_at": "CREATE INDEX job_queue_process_at ON proletarian.job USING btree (queue, process_at)",
    "job_retrying": (
        "CREATE INDEX job_retrying ON proletarian.job USING btree (queue, process_at) WHERE (attempts > 0)"
    ),
    "archived_job_pkey": "CREATE UNIQUE INDEX archived_job_pkey ON proletarian.archived_job USING btree (job_id)",
    "archived_job_finished_at": (
        "CREATE INDEX archived_job_finished_at ON proletarian.archived_job USING btree (finished_at)"
    ),
    "archived_job_failures": (
        "CREATE INDEX archived_job_failures ON proletarian.archived_job USING btree (finished_at) "
        "WHERE (status = ':failure'::text)"
    ),
}
OURS = {
    "job_attempt": {
        "attempt_id": "bigint",
        "job_id": "uuid",
        "attempt": "integer",
        "worker_id": "text, or null",
        "started_at": "timestamp with time zone",
        "finished_at": "timestamp with time zone",
        "outcome": "text",
        "exception_class": "text, or null",
        "message": "text, or null",
        "traceback": "text, or null",
        "result": "text, or null",
    },
    "worker": {
        "process_id": "uuid",
        "worker_id": "text",
        "host": "text",
        "pid": "integer",
        "queues": "jsonb",
        "processes": "integer",
        "threads": "integer",
        "version": "text",
        "started_at": "timestamp with time zone",
        "heartbeat_at": "timestamp with time zone",
        "running": "jsonb",
        "succeeded": "bigint",
        "failed": "bigint",
    },
}
OUR_INDEXES = {
    "job_attempt_pkey": "CREATE UNIQUE INDEX job_attempt_pkey ON proletarian.job_attempt USING btree (attempt_id)",
    "job_attempt_job_id": "CREATE INDEX job_attempt_job_id ON proletarian.job_attempt USING btree (job_id)",
    "worker_pkey": "CREATE UNIQUE INDEX worker_pkey ON proletarian.worker USING btree (process_id)",
}
ALL_TABLES = CONTRACT | OURS
ALL_INDEXES = INDEXES | OUR_INDEXES
# What the original's tables.sql makes, word for word in effect.
CLOJURES = """
CREATE SCHEMA proletarian;
CREATE TABLE proletarian.job (
    job_id UUID PRIMARY KEY, queue TEXT NOT NULL, job_type TEXT NOT NULL, payload TEXT NOT NULL,
    attempts INTEGER NOT NULL, enqueued_at TIMESTAMPTZ NOT NULL, process_at TIMESTAMPTZ NOT NULL
);
CREATE TABLE proletarian.archived_job (
    job_id UUID PRIMARY KEY, queue TEXT NOT NULL, job_type TEXT NOT NULL, payload TEXT NOT NULL,
    attempts INTEGER NOT NULL, enqueued_at TIMESTAMPTZ NOT NULL, process_at TIMESTAMPTZ NOT NULL,
    status TEXT NOT NULL, finished_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX job_queue_process_at ON proletarian.job (queue, process_at);
"""
CUSTOM = (
    'PROLETARIAN = {"JOB_TABLE": "myapp.proletarian_job", "ARCHIVED_JOB_TABLE": "myapp.proletarian_archived_job"}\n'
)
NO_SCHEMA = 'PROLETARIAN = {"JOB_TABLE": "jobs", "ARCHIVED_JOB_TABLE": "old_jobs"}\n'
NO_MIGRATIONS = 'MIGRATION_MODULES = {"django_proletarian": None}\n'
SQLITE = """
DATABASES["pg"] = DATABASES["default"]
DATABASES["default"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": "lite.sqlite3"}
"""
ROUTER = """
class Router:
    def db_for_read(self, model, **hints):
        return "pg" if model._meta.app_label == "django_proletarian" else None
    db_for_write = db_for_read
    def allow_migrate(self, db, app_label, model_name=None, **hints):
        return db == "pg" if app_label == "django_proletarian" else None
DATABASE_ROUTERS = [Router()]
"""


def columns(scratch: Scratch, schema: str = "proletarian") -> dict[str, dict[str, str]]:
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind, nullable in scratch.sql(
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_schema = %s ORDER BY table_name, ordinal_position",
        schema,
    ):
        tables.setdefault(table, {})[column] = kind if nullable == "NO" else f"{kind}, or null"
    return tables


def indexes(scratch: Scratch, schema: str = "proletarian") -> dict[str, str]:
    found = scratch.sql("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = %s", schema)
    return {str(name): str(definition) for name, definition in found}


def schemas(scratch: Scratch) -> set[str]:
    found = scratch.sql("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'")
    return {str(name) for (name,) in found}


def enqueue_and_drain(scratch: Scratch, database: str = "default") -> None:
    """A job goes through the tables that there are."""
    code = f"""
from django_proletarian import enqueue
from django_proletarian.models import ArchivedJob, Job
enqueue("no/handler", 1, using={database!r})
django.core.management.call_command("proletarian_worker", drain=True, database={database!r}, verbosity=0)
print(Job.objects.using({database!r}).count(), ArchivedJob.objects.using({database!r}).failed().count())
"""
    assert scratch.python(code).splitlines()[-1] == "0 1"


def test_migrate_makes_the_originals_tables_and_what_we_add_to_them(scratch: Scratch) -> None:
    scratch.manage("migrate")
    assert columns(scratch) == ALL_TABLES
    assert indexes(scratch) == ALL_INDEXES
    enqueue_and_drain(scratch)


def test_a_clojure_installation_is_adopted_with_its_rows_and_index(scratch: Scratch) -> None:
    scratch.sql(CLOJURES)
    first = json.loads((Path(__file__).parent.parent / "clojure" / "rows.jsonl").read_text().splitlines()[0])
    row = [first[column] for column in CONTRACT["job"]]
    scratch.sql("INSERT INTO proletarian.job VALUES (%s, %s, %s, %s, %s, %s, %s)", *row)
    ours = "('job', 'archived_job', 'job_queue_process_at')"
    state = f"SELECT oid, relfilenode FROM pg_class WHERE relname IN {ours} ORDER BY 1"
    before = (
        scratch.sql(f"TABLE proletarian.job; {state}"),
        scratch.sql("SELECT job::text, xmin::text FROM proletarian.job"),
    )
    scratch.manage("migrate")
    assert before == (
        scratch.sql(f"TABLE proletarian.job; {state}"),
        scratch.sql("SELECT job::text, xmin::text FROM proletarian.job"),
    )
    code = "from django_proletarian.models import Job; j = Job.objects.get(); "
    code += "print(j.queue, j.job_type, j.payload['email'])"
    assert scratch.python(code) == "proletarian/default my.app/send-email a@b.c\n"


def test_a_role_that_may_create_nothing_adopts_what_is_there(scratch: Scratch) -> None:
    scratch.sql(
        CLOJURES + "CREATE TABLE django_migrations (id BIGSERIAL PRIMARY KEY, app TEXT, name TEXT, applied TIMESTAMPTZ)"
    )
    scratch.sql("DROP ROLE IF EXISTS adopter")
    scratch.sql(
        "CREATE ROLE adopter LOGIN; GRANT USAGE ON SCHEMA proletarian, public TO adopter;"
        "GRANT ALL ON ALL TABLES IN SCHEMA proletarian, public TO adopter;"
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO adopter"
    )
    try:
        scratch.configure('DATABASES["default"]["USER"] = "adopter"\n')
        scratch.manage("migrate", "django_proletarian")
    finally:
        scratch.sql("DROP OWNED BY adopter; DROP ROLE adopter")


@pytest.mark.parametrize(
    "wrong",
    [
        "DROP INDEX proletarian.job_queue_process_at",
        "DROP INDEX proletarian.job_queue_process_at; "
        "CREATE INDEX job_queue_process_at ON proletarian.job (process_at)",
        "DROP INDEX proletarian.job_queue_process_at; CREATE INDEX mine ON proletarian.job (queue, process_at DESC)",
        "DROP INDEX proletarian.job_queue_process_at; "
        "CREATE INDEX mine ON proletarian.job (queue, process_at) WHERE attempts = 0",
    ],
)
def test_a_missing_or_wrong_index_is_made(scratch: Scratch, wrong: str) -> None:
    scratch.sql(CLOJURES + wrong)
    scratch.manage("migrate")
    assert indexes(scratch)["job_queue_process_at"] == INDEXES["job_queue_process_at"]


def test_an_index_of_another_name_is_right_too(scratch: Scratch) -> None:
    scratch.sql(CLOJURES + "ALTER INDEX proletarian.job_queue_process_at RENAME TO mine")
    scratch.manage("migrate")
    assert "job_queue_process_at" not in indexes(scratch)


def test_old_tables_without_time_zones_are_refused_with_the_statement_that_mends_them(scratch: Scratch) -> None:
    scratch.sql(CLOJURES.replace("TIMESTAMPTZ", "TIMESTAMP"))
    scratch.sql(
        "INSERT INTO proletarian.job "
        "VALUES (gen_random_uuid(), ':q', ':t', '[]', 0, '2026-01-01 12:00', '2026-01-01 12:00')"
    )
    for table in ("job", "archived_job"):
        said = scratch.manage("migrate", exit_code=1)
        assert f'Table "proletarian"."{table}" was made by an old Proletarian' in said
        scratch.sql(said[said.index("ALTER TABLE") : said.index("; then migrate again")])
    scratch.manage("migrate")
    assert columns(scratch) == ALL_TABLES
    assert scratch.sql("SELECT process_at = '2026-01-01 12:00+00' FROM proletarian.job") == [(True,)]


def test_undo_drops_the_tables_and_the_schema(scratch: Scratch) -> None:
    scratch.manage_in_turn("migrate", "migrate django_proletarian zero")
    assert schemas(scratch) == {"public"}
    scratch.manage("migrate")
    assert columns(scratch) == ALL_TABLES


def test_undo_leaves_a_schema_in_which_something_else_lives(scratch: Scratch) -> None:
    scratch.manage("migrate")
    scratch.sql("CREATE VIEW proletarian.mine AS SELECT 1")
    scratch.manage("migrate", "django_proletarian", "zero")
    assert scratch.sql("SELECT * FROM proletarian.mine") == [(1,)]
    assert scratch.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'proletarian'") == []


@pytest.mark.parametrize(
    ("settings", "schema", "tables", "index"),
    [
        (
            CUSTOM,
            "myapp",
            {"proletarian_job", "proletarian_archived_job", "proletarian_job_attempt", "proletarian_worker"},
            "proletarian_job_queue_process_at",
        ),
        (NO_SCHEMA, "public", {"jobs", "old_jobs", "jobs_attempt", "jobs_worker"}, "jobs_queue_process_at"),
    ],
)
@pytest.mark.parametrize("migrations", ["", NO_MIGRATIONS], ids=["migrated", "without migrations"])
def test_other_table_names_are_followed_everywhere(
    scratch: Scratch, settings: str, schema: str, tables: set[str], index: str, migrations: str
) -> None:
    scratch.configure(settings + migrations)
    migrate = "migrate --run-syncdb" if migrations else "migrate"
    scratch.manage_in_turn(migrate, "makemigrations --check --dry-run")
    assert tables <= tables_in(scratch, schema)
    assert index in indexes(scratch, schema)
    assert "proletarian" not in schemas(scratch)
    enqueue_and_drain(scratch)
    if not migrations:
        scratch.manage("migrate", "django_proletarian", "zero")
        assert not tables & tables_in(scratch, schema)
        assert schemas(scratch) == {"public"}


def tables_in(scratch: Scratch, schema: str) -> set[str]:
    return {str(name) for (name,) in scratch.sql("SELECT tablename FROM pg_tables WHERE schemaname = %s", schema)}


def test_without_migrations_the_tables_are_made_and_found_again(scratch: Scratch) -> None:
    scratch.configure(NO_MIGRATIONS)
    for _ in ("made", "found"):
        scratch.manage("migrate", "--run-syncdb")
        assert (columns(scratch), indexes(scratch)) == (ALL_TABLES, ALL_INDEXES)
    enqueue_and_drain(scratch)


@pytest.mark.parametrize("settings", ["", CUSTOM, NO_SCHEMA], ids=["default", "custom", "no schema"])
def test_makemigrations_finds_nothing_to_do(scratch: Scratch, settings: str) -> None:
    scratch.configure(settings)
    assert "No changes detected" in scratch.manage("makemigrations", "--check", "--dry-run")


def test_sqlmigrate_prints_the_sql_that_runs(scratch: Scratch) -> None:
    migrations = ("0001", "0002", "0003", "0004", "0005")
    print_and_run(scratch, *migrations)
    assert (columns(scratch), indexes(scratch)) == (ALL_TABLES, ALL_INDEXES)
    print_and_run(scratch, *reversed(migrations), backwards=True)
    assert schemas(scratch) == {"public"}


def print_and_run(scratch: Scratch, *migrations: str, backwards: bool = False) -> None:
    """Run what sqlmigrate prints of each migration, as psql would, before the next is asked for."""
    scratch.python(f"""
import io, psycopg
with psycopg.connect({scratch.url!r}, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
    for migration in {migrations!r}:
        printed = io.StringIO()
        django.core.management.call_command(
            "sqlmigrate", "django_proletarian", migration, backwards={backwards}, stdout=printed
        )
        connection.execute(printed.getvalue())
""")


ARCHIVED = (
    "INSERT INTO proletarian.archived_job "
    "VALUES (gen_random_uuid(), ':q', ':t', '[]', 1, now(), now(), ':success', now());"
)


def test_the_archives_index_is_built_beside_running_workers_and_can_be_undone(scratch: Scratch) -> None:
    scratch.sql(CLOJURES + ARCHIVED)
    with psycopg.connect(scratch.url) as worker:
        # A worker whose job is running: it has written to the archive, and its transaction is open.
        worker.execute(ARCHIVED)
        migrating = threading.Thread(target=scratch.manage, args=("migrate",))
        migrating.start()
        waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        eventually(lambda: scratch.sql(waits))
        # Waiting for that transaction, it keeps nobody else from archiving.
        scratch.sql("SET lock_timeout = '1s'; " + ARCHIVED)
        worker.commit()
    migrating.join()
    assert indexes(scratch) == ALL_INDEXES
    scratch.manage("migrate", "django_proletarian", "0001")
    assert "archived_job_finished_at" not in indexes(scratch)


@pytest.mark.parametrize("columns", ["finished_at DESC", "finished_at, status"])
def test_an_index_by_finished_at_that_somebody_made_is_adopted(scratch: Scratch, columns: str) -> None:
    scratch.sql(f"{CLOJURES} CREATE INDEX mine ON proletarian.archived_job ({columns})")
    scratch.manage("migrate")
    assert set(indexes(scratch)) == {*ALL_INDEXES, "mine"} - {"archived_job_finished_at"}


@pytest.mark.parametrize("index", ["archived_job_finished_at", "archived_job_failures"])
def test_an_index_whose_building_was_cut_off_is_built_again(scratch: Scratch, index: str) -> None:
    scratch.sql(CLOJURES + ARCHIVED * 2)
    with pytest.raises(psycopg.errors.UniqueViolation):
        scratch.sql(f"CREATE UNIQUE INDEX CONCURRENTLY {index} ON proletarian.archived_job (finished_at)")
    assert index in indexes(scratch)
    scratch.manage("migrate")
    assert indexes(scratch) == ALL_INDEXES


def test_several_databases_each_have_their_queue(scratch: Scratch) -> None:
    with scratch_database() as url:
        scratch.configure(f'DATABASES["second"] = dj_database_url.parse({url!r})\n')
        scratch.manage_in_turn("migrate", "migrate --database second")
        for alias in ("default", "second"):
            enqueue_and_drain(scratch, alias)


def test_a_default_database_that_is_not_postgresql_is_left_alone(scratch: Scratch) -> None:
    scratch.configure(SQLITE)
    scratch.manage_in_turn("migrate", "migrate --database pg")
    assert columns(scratch) == ALL_TABLES
    assert "W001" in scratch.manage("check")
    enqueue_and_drain(scratch, "pg")
    said = scratch.run(
        "-c", "import django; django.setup(); import django_proletarian as p; p.enqueue('a')", exit_code=1
    )
    assert 'Database "default" is sqlite, and jobs live in PostgreSQL only. Give using=' in said


@pytest.mark.parametrize("migrations", ["", NO_MIGRATIONS], ids=["migrated", "without migrations"])
def test_a_router_decides_where_jobs_live(scratch: Scratch, migrations: str) -> None:
    with scratch_database() as url:
        scratch.configure(
            'DATABASES["pg"] = DATABASES["default"]\n'
            f'DATABASES["default"] = dj_database_url.parse({url!r})\n{ROUTER}{migrations}'
        )
        scratch.manage_in_turn("migrate --run-syncdb", "migrate --run-syncdb --database pg")
        assert columns(scratch) == ALL_TABLES
        assert scratch.sql("SELECT to_regnamespace('proletarian')", url=url) == [(None,)]
        assert "W001" not in scratch.manage("check")
        scratch.python("import django_proletarian; django_proletarian.enqueue('no/handler')")
        scratch.manage("proletarian_worker", "--drain", "-v", "0")
        assert scratch.sql("SELECT count(*) FROM proletarian.archived_job") == [(1,)]


def test_pytest_runs_without_migrations_and_with_a_reused_database(scratch: Scratch) -> None:
    scratch.write("pytest.ini", "[pytest]\nDJANGO_SETTINGS_MODULE = scratch_settings\n")
    scratch.write(
        "test_it.py",
        "import pytest\nfrom django_proletarian import enqueue\nfrom django_proletarian.models import Job\n\n\n"
        "@pytest.mark.django_db\ndef test_it():\n    enqueue('a')\n    assert Job.objects.due().count() == 1\n",
    )
    for options in (["--reuse-db"], ["--reuse-db"], ["--create-db"], ["--create-db", "--migrations"]):
        nomigrations: list[Any] = [] if "--migrations" in options else ["--nomigrations"]
        assert "1 passed" in scratch.run("-m", "pytest", "-p", "no:cacheprovider", *nomigrations, *options)
