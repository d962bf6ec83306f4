"""proletarian_install and proletarian_uninstall, on a server of their own: roles belong to a whole server."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import dj_database_url
import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from tests.live.processes import ROOT, WorkerProcess, archived, insert_jobs, sql
from tests.postgres import Postgres, programs

pytestmark = pytest.mark.server

Spawn = Callable[..., WorkerProcess]
PRIVILEGES = """
SELECT table_name, string_agg(privilege_type, ' ' ORDER BY privilege_type)
  FROM information_schema.role_table_grants WHERE grantee = %s GROUP BY table_name ORDER BY 1
"""
GRANTED = [
    ("archived_job", "INSERT SELECT TRUNCATE"),  # as the original grants, and on job
    ("job", "DELETE INSERT SELECT TRUNCATE UPDATE"),
    ("job_attempt", "INSERT SELECT TRUNCATE UPDATE"),
    ("worker", "DELETE INSERT SELECT UPDATE"),
]
TABLES = "proletarian.job, proletarian.archived_job, proletarian.job_attempt, proletarian.worker"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as server:
        # Whoever may log in must say who he is, the superuser excepted.
        hba = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (server.data / "pg_hba.conf").write_text(hba)
        sql(server.url, "SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def url(server: Postgres, django_db_blocker: Any) -> Iterator[str]:
    """An empty database, the alias "installed", on a server that has no role of ours."""
    sql(server.url, "CREATE DATABASE installed")
    connections.settings["installed"] = {**dj_database_url.parse(of(server, "installed")), "TIME_ZONE": None}
    connections.settings["installed"] |= {"ATOMIC_REQUESTS": False, "AUTOCOMMIT": True, "OPTIONS": {}, "TEST": {}}
    with django_db_blocker.unblock():
        yield of(server, "installed")
        connections["installed"].close()
    del connections["installed"], connections.settings["installed"]
    sql(server.url, "DROP DATABASE IF EXISTS installed WITH (FORCE)")
    for (role,) in sql(server.url, "SELECT quote_ident(rolname) FROM pg_roles WHERE rolname !~ '^(pg_|postgres$)'"):
        sql(server.url, f"DROP ROLE {role}")


def run(command: str, *arguments: str) -> str:
    """Run proletarian_install or proletarian_uninstall on that database; return what it prints."""
    out = io.StringIO()
    call_command(f"proletarian_{command}", "--database", "installed", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def of(server: Postgres, database: str, user: str = "postgres", password: str = "") -> str:
    login = f"{user}:{password}@" if password else f"{user}@"
    return urlunsplit(urlsplit(server.url)._replace(path=f"/{database}", netloc=f"{login}127.0.0.1:{server.port}"))


def dumped(url: str) -> str:
    """What `pg_dump --schema-only` says; newer versions put a random word into it."""
    dump = subprocess.run(
        [str(programs() / "pg_dump"), "--schema-only", url], capture_output=True, text=True, check=True, timeout=60
    )
    return "\n".join(line for line in dump.stdout.splitlines() if "restrict" not in line)


def psql(url: str, script: str) -> str:
    """Run a script as a DBA would."""
    done = subprocess.run(
        [str(programs() / "psql"), "--no-psqlrc", "--quiet", "--dbname", url],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_worker_runs_as_the_role_that_was_installed_and_uninstalling_leaves_no_trace(
    server: Postgres, url: str, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dumped(url)
    monkeypatch.setenv("WORKERS_PASSWORD", "o'clock")
    said = run("install", "--password-env", "WORKERS_PASSWORD")
    assert said.splitlines() == [
        'Role "proletarian" created.',
        'Password of role "proletarian" set.',
        f'Tables in database "installed": {TABLES}.',
        'GRANT USAGE ON SCHEMA "proletarian" TO "proletarian";',
        'GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON "proletarian"."job" TO "proletarian";',
        'GRANT SELECT, INSERT, TRUNCATE ON "proletarian"."archived_job" TO "proletarian";',
        'GRANT SELECT, INSERT, UPDATE, TRUNCATE ON "proletarian"."job_attempt" TO "proletarian";',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON "proletarian"."worker" TO "proletarian";',
    ]
    assert sql(url, PRIVILEGES, ["proletarian"]) == GRANTED
    assert 'Role "proletarian" exists already.' in run("install")

    login = of(server, "installed", "proletarian", "o'clock".replace("'", "%27"))
    with psycopg.connect(login) as role, pytest.raises(psycopg.errors.InsufficientPrivilege):
        role.execute("CREATE TABLE proletarian.mine ()")
    worker = spawn("--threads", "2", url=login)
    insert_jobs(url, "no/handler", ["1", "2"])
    insert_jobs(login, "no/handler", ["3"])
    worker.says("not-retrying")
    with pytest.raises(CommandError, match=r"Workers are alive: proletarian\[.*\]. Stop them first, or give --force."):
        run("uninstall", "--no-input")
    with psycopg.connect(login) as stranger:
        assert worker.stop() == 0
        with pytest.raises(CommandError, match='Role "proletarian" is logged in, 1 times'):
            run("uninstall", "--no-input")
        stranger.rollback()
    assert archived(url) == [(":no/handler", ":failure", 1)] * 3
    assert sql(url, "SELECT outcome, count(*) FROM proletarian.job_attempt GROUP BY 1") == [("failure", 3)]

    said = run("uninstall", "--no-input")
    assert said.splitlines() == [
        f'Tables dropped from database "installed": {TABLES}.',
        'Role "proletarian" dropped.',
    ]
    assert dumped(url) == before
    again = run("uninstall", "--no-input", "--force")
    assert 'There is no role "proletarian".' in again


def test_the_printed_script_does_the_same_in_psql(server: Postgres, url: str) -> None:
    empty = dumped(url)
    run("install", "--allow-pruning", "--role", 'wor"ker')
    installed = dumped(url)
    recorded = "SELECT app, name FROM django_migrations ORDER BY id"
    migrations = sql(url, recorded)
    run("uninstall", "--no-input", "--role", 'wor"ker')
    assert dumped(url) == empty

    script = run("install", "--allow-pruning", "--role", 'wor"ker', "--print-sql")
    assert dumped(url) == empty
    psql(url, script)
    assert dumped(url) == installed
    assert sql(url, recorded) == migrations
    assert sql(url, PRIVILEGES, ['wor"ker'])[0] == ("archived_job", "DELETE INSERT SELECT TRUNCATE")
    assert "is left as it is" in psql(url, script)  # and can be run again
    assert sql(url, recorded) == migrations
    run("uninstall", "--no-input", "--role", 'wor"ker')
    assert dumped(url) == empty


def test_the_printed_script_makes_the_database_too_whatever_its_name(server: Postgres, url: str) -> None:
    name = "a b'c\"d=e"
    connections["installed"].settings_dict["NAME"] = name
    for create in (
        lambda: psql(server.url, run("install", "--create-database", "--print-sql")),
        lambda: run("install", "--create-database"),
    ):
        create()
        assert sql(server.url, "SELECT datname FROM pg_database WHERE datname ~ 'a b'") == [(name,)]
        assert f'Database "{name}" exists already.' in run("install", "--create-database")
        said = run("uninstall", "--no-input", "--drop-database")
        assert said == f'Database "{name}" dropped.\nRole "proletarian" dropped.\n'
        assert sql(server.url, "SELECT FROM pg_database WHERE datname ~ 'a b'") == []
    assert f'Database "{name}" dropped.' in run("uninstall", "--no-input", "--drop-database")
    assert f'There is no database "{name}".' in run("uninstall", "--no-input")


def test_what_others_need_is_kept(server: Postgres, url: str) -> None:
    run("install")
    sql(
        url,
        "CREATE TABLE proletarian.mine (); GRANT SELECT ON proletarian.mine TO proletarian;"
        "INSERT INTO django_migrations (app, name, applied) VALUES ('shop', '0001_initial', now())",
    )
    said = run("uninstall", "--no-input")
    assert 'Role "proletarian" is kept: role "proletarian" cannot be dropped because some objects depend on it' in said
    assert sql(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'proletarian'") == [("mine",)]
    assert sql(url, "SELECT app FROM django_migrations") == [("shop",)]
    sql(url, "DROP TABLE proletarian.mine")
    assert 'Role "proletarian" dropped.' in run("uninstall", "--no-input")


def test_nothing_is_dropped_until_the_name_is_typed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run("install")
    for typed in ("", "y", "proletarian"):
        monkeypatch.setattr("builtins.input", lambda prompt, typed=typed: typed)
        with pytest.raises(CommandError, match=r"That is not its name\. Nothing was changed\."):
            run("uninstall")
    assert sql(url, PRIVILEGES, ["proletarian"]) == GRANTED
    monkeypatch.setattr("builtins.input", lambda prompt: "installed")
    assert "Tables dropped" in run("uninstall")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--role", "x" * 64], "can be no name in PostgreSQL"),
        (["--role", "pg_mine"], 'role name "pg_mine" is reserved'),
        (["--password-env", "NOT_SET"], "The environment variable NOT_SET is not set, or empty."),
        (["--print-sql", "--password-env", "HOME"], "A printed script has no password in it."),
    ],
)
def test_an_option_that_can_not_be_is_named(url: str, arguments: list[str], named: str) -> None:
    with pytest.raises(CommandError, match=named):
        run("install", *arguments)


def make(server: Postgres, target: str, **variables: str) -> str:
    """Run a target of the Makefile with psql's variables, in this test run's environment instead of .venv."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        ["make", "--no-print-directory", "-o", ".venv/.has-demo", f"BIN={Path(sys.executable).parent}", target],
        cwd=ROOT,
        env={**environment, "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_make_targets_take_psqls_variables(server: Postgres, url: str) -> None:
    assert 'Database "proletarian" created.' in make(server, "examples.db.install")
    assert sql(of(server, "proletarian"), PRIVILEGES, ["proletarian"]) == GRANTED
    assert make(server, "examples.db.uninstall") == 'Database "proletarian" dropped.\nRole "proletarian" dropped.\n'
    assert sql(server.url, "SELECT FROM pg_database WHERE datname = 'proletarian'") == []
    before = dumped(url)
    ours = {"DATABASE_NAME": "installed", "CREATE_DATABASE": "off"}
    assert 'Tables in database "installed"' in make(server, "examples.db.install", **ours)
    assert 'Tables dropped from database "installed"' in make(server, "examples.db.uninstall", **ours)
    assert dumped(url) == before
