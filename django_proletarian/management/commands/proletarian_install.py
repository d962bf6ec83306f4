"""`manage.py proletarian_install`: role, database, tables and rights, as the original's install script makes them."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any, cast

import psycopg
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DjangoDatabaseError
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper

from django_proletarian import conf, installation
from django_proletarian.management.databases import database_of


class Command(BaseCommand):
    help = "Creates a role for workers, the tables, and the rights that the role needs. What exists is left as it is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--database", metavar="ALIAS", help="Database to install into. Default: what the routers say.")
        add("--role", default="proletarian", metavar="NAME", help="The workers' role. Default: proletarian.")
        add("--create-database", action="store_true", help="Create the database first, if it does not exist.")
        add(
            "--password-env",
            metavar="NAME",
            help="Environment variable with a password to give to the role; it reaches the server hashed.",
        )
        add(
            "--allow-pruning",
            action="store_true",
            help="Grant DELETE on the archive too, which the original does not, and the RETENTION setting needs.",
        )
        add("--print-sql", action="store_true", help="Change nothing; print a script for psql that does it all.")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = database_of(options["database"])
        role, tables = options["role"], conf.settings().tables
        connection = connections[alias]
        name, all_tables = str(connection.settings_dict["NAME"]), ", ".join(tables.all)
        if not router.allow_migrate(alias, "django_proletarian", model_name="job"):
            raise CommandError(f'The routers keep our tables out of database "{alias}". Give another --database.')
        password = self.password(options["password_env"], print_sql=options["print_sql"])
        try:
            grants = installation.grants(tables, role, pruning=options["allow_pruning"])
            if options["print_sql"]:
                parts = installation.script(
                    connection,
                    tables,
                    role,
                    with_database=options["create_database"],
                    pruning=options["allow_pruning"],
                )
                self.stdout.write("\n".join(part.strip("\n") for part in parts))
                return
            if options["create_database"]:
                self.create_database(connection, name)
            self.create_role(connection, role)
            if password is not None:
                set_password(connection, role, password)
                self.stdout.write(f'Password of role "{role}" set.')
            call_command("migrate", "django_proletarian", database=alias, verbosity=0)
            self.stdout.write(f'Tables in database "{name}": {all_tables}.')
            with connection.cursor() as cursor:
                for grant in grants:
                    cursor.execute(grant)
                    self.stdout.write(grant)
        except (ValueError, DjangoDatabaseError) as error:
            raise CommandError(f'Installing into database "{alias}" failed: {str(error).strip()}') from error

    def password(self, variable: str | None, *, print_sql: bool) -> str | None:
        """What the environment says. Raises CommandError if it says nothing."""
        if variable is None:
            return None
        if print_sql:
            raise CommandError('A printed script has no password in it. Set it in psql: \\password "the role"')
        if not os.environ.get(variable):
            raise CommandError(f"The environment variable {variable} is not set, or empty.")
        return os.environ[variable]

    def create_database(self, connection: BaseDatabaseWrapper, name: str) -> None:
        # Django's own way to a server whose database is not there yet, which its test runner goes.
        with connection._nodb_cursor() as cursor:
            cursor.execute("SELECT FROM pg_database WHERE datname = %s", [name])
            if cursor.rowcount:
                self.stdout.write(f'Database "{name}" exists already.')
            else:
                cursor.execute(installation.create_database(name))
                self.stdout.write(f'Database "{name}" created.')

    def create_role(self, connection: BaseDatabaseWrapper, role: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT rolcanlogin FROM pg_roles WHERE rolname = %s", [role])
            match cursor.fetchone():
                case None:
                    cursor.execute(installation.create_role(role))
                    self.stdout.write(f'Role "{role}" created.')
                case (True,):
                    self.stdout.write(f'Role "{role}" exists already.')
                case _:
                    self.stdout.write(f'Role "{role}" exists already, and may not log in: ALTER ROLE … LOGIN.')


def set_password(connection: BaseDatabaseWrapper, role: str, password: str) -> None:
    """Give the role a password. It is hashed here, so that no log of the server can show it."""
    connection.ensure_connection()
    pgconn = cast("psycopg.Connection[Any]", connection.connection).pgconn
    hashed = pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER ROLE {installation.identifier(role)} PASSWORD {installation.literal(hashed)}")
