"""Django projects with a database of their own, for what one process can't show: other settings, tables, migrations."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.forking import run_forked

SETTINGS = """
import dj_database_url

SECRET_KEY = "scratch"
INSTALLED_APPS = ["django_proletarian"]
DATABASES = {"default": dj_database_url.parse(%(url)r)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""


class Scratch:
    """A project in `directory` with the database at `url`."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.configure("")

    def configure(self, settings: str) -> None:
        """Write the settings module, `settings` after the usual ones."""
        (self.directory / "scratch_settings.py").write_text(SETTINGS % {"url": self.url} + settings)

    def write(self, path: str, text: str) -> None:
        """Write a file of the project."""
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def environment(self) -> dict[str, str]:
        """What its processes run with."""
        root = Path(__file__).parent.parent
        # Without its caches Python compiles all of Django at every start.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {
            **inherited,
            "DJANGO_SETTINGS_MODULE": "scratch_settings",
            "PYTHONPATH": f"{self.directory}{os.pathsep}{root}",
        }

    def manage(self, *arguments: str, exit_code: int = 0) -> str:
        """Run a management command and return what it printed, errors included."""
        return self.run("-m", "django", *arguments, exit_code=exit_code)

    def manage_in_turn(self, *commands: str) -> str:
        """Run several management commands in one process, which starts once; return what they printed."""
        return self.python(
            "".join(f"django.core.management.call_command(*{command.split()!r})\n" for command in commands)
        )

    def python(self, code: str) -> str:
        """Run code after django.setup() and return what it printed."""
        return self.run("-c", f"import django, django.core.management; django.setup()\n{code}")

    def run(self, *arguments: str, exit_code: int = 0) -> str:
        """Run Python in the project; fail if it ends with another exit code."""
        code, printed = run_forked(list(arguments), self.directory, self.environment(), seconds=60)
        assert code == exit_code, printed
        return printed

    def sql(self, statement: str, *values: Any, url: str | None = None) -> list[tuple[Any, ...]]:
        """Run SQL in the database and commit; return the rows of the last statement, if it has any."""
        with psycopg.connect(url or self.url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            cursor = connection.execute(statement, values or None)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description is not None else []


@contextmanager
def scratch_database() -> Iterator[str]:
    """The URL of an empty database on the tests' server, dropped at the end."""
    name = f"scratch_{uuid.uuid4().hex}"
    server = os.environ["DATABASE_URL"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
