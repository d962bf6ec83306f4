"""`manage.py proletarian_uninstall`: takes away what proletarian_install made, once a person has said so."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DjangoDatabaseError
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_proletarian import conf, installation, schema
from django_proletarian.management.databases import database_of
from django_proletarian.presence import live_workers
from django_proletarian.tables import Tables

# With --force the tables may be in use; to drop one waits for every job that runs.
GIVE_UP = "SET lock_timeout = '30s'"
SESSIONS_OF_ROLE = """
SELECT count(*) FROM pg_stat_activity
 WHERE usename = %s AND datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


class Command(BaseCommand):
    help = "Drops the tables with all jobs in them, their schema if nothing else lives there, and the workers' role."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--database", metavar="ALIAS", help="Database to uninstall from. Default: what the routers say.")
        add("--role", default="proletarian", metavar="NAME", help="The role to drop. Default: proletarian.")
        add("--drop-database", action="store_true", help="Drop the whole database, whatever else is in it.")
        add("--no-input", "--noinput", action="store_false", dest="interactive", help="Do not ask.")
        add("--force", action="store_true", help="Go on although workers are alive.")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = database_of(options["database"])
        role, tables = options["role"], conf.settings().tables
        connection = connections[alias]
        name, all_tables = str(connection.settings_dict["NAME"]), ", ".join(tables.all)
        exists = database_exists(connection)
        if exists and not options["force"]:
            refuse_while_in_use(connection, tables, role)
        if options["interactive"]:
            self.ask(name, tables, role, drop_database=options["drop_database"])
        try:
            if options["drop_database"]:
                connection.close()
                with connection._nodb_cursor() as cursor:
                    cursor.execute(installation.drop_database(name, force=options["force"]))
                self.stdout.write(f'Database "{name}" dropped.')
            elif exists:
                drop_tables(connection, tables, role)
                self.stdout.write(f'Tables dropped from database "{name}": {all_tables}.')
            else:
                self.stdout.write(f'There is no database "{name}".')
            self.drop_role(connection, role, exists=exists and not options["drop_database"])
        except (ValueError, DjangoDatabaseError) as error:
            raise CommandError(f'Uninstalling from database "{alias}" failed: {str(error).strip()}') from error

    def ask(self, name: str, tables: Tables, role: str, *, drop_database: bool) -> None:
        """Have the database's name typed. Raises CommandError if something else is."""
        what = "the whole database" if drop_database else ", ".join(tables.all)
        self.stdout.write(f'This drops {what} with all that is in it, and the role "{role}".')
        try:
            typed = input(f'Type the name of the database, "{name}", to go on: ')
        except EOFError:
            typed = ""
        if typed != name:
            raise CommandError("That is not its name. Nothing was changed. (--no-input does not ask.)")

    def drop_role(self, connection: BaseDatabaseWrapper, role: str, *, exists: bool) -> None:
        """Drop the role; one that something else still needs is kept, and that is said."""
        with connection.cursor() if exists else connection._nodb_cursor() as cursor:
            cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", [role])
            if not cursor.rowcount:
                self.stdout.write(f'There is no role "{role}".')
                return
            try:
                cursor.execute(installation.drop_role(role))
            except DjangoDatabaseError as error:
                self.stderr.write(f'Role "{role}" is kept: {str(error).strip()}')
            else:
                self.stdout.write(f'Role "{role}" dropped.')


def database_exists(connection: BaseDatabaseWrapper) -> bool:
    """Whether it does. Raises CommandError if the server can't be reached."""
    try:
        connection.ensure_connection()
    except DjangoDatabaseError as refused:
        # The refusal itself says why only in the server's language.
        try:
            with connection._nodb_cursor() as cursor:
                cursor.execute("SELECT FROM pg_database WHERE datname = %s", [connection.settings_dict["NAME"]])
                if not cursor.rowcount:
                    return False
        except DjangoDatabaseError:
            pass  # the first error is the one to tell
        raise CommandError(f"The database can't be reached: {str(refused).strip()}") from refused
    return True


def refuse_while_in_use(connection: BaseDatabaseWrapper, tables: Tables, role: str) -> None:
    """Raise CommandError if a worker is alive, or anybody is logged in as the role: the original's workers may be."""
    with connection.cursor() as cursor:
        if alive := live_workers(cursor, tables):
            names = ", ".join(worker.worker_id for worker in alive)
            raise CommandError(f"Workers are alive: {names}. Stop them first, or give --force.")
        cursor.execute(SESSIONS_OF_ROLE, [role])
        [sessions] = cursor.fetchone()
    if sessions:
        raise CommandError(
            f'Role "{role}" is logged in, {sessions} times; it may be a worker. Stop it first, or give --force.'
        )


def drop_tables(connection: BaseDatabaseWrapper, tables: Tables, role: str) -> None:
    """Drop all that migrations made, recorded or not, and what the role was granted besides."""
    with connection.cursor() as cursor:
        cursor.execute(GIVE_UP)
        try:
            call_command("migrate", "django_proletarian", "zero", database=connection.alias, verbosity=0)
            # Tables that nobody migrated, the original's, are still there.
            cursor.execute(schema.drop_worker(tables))
            cursor.execute(schema.drop_job_attempt(tables))
            cursor.execute(schema.drop_archived_job(tables))
            cursor.execute(schema.drop_job(tables))
            cursor.execute(schema.drop_schemas(tables))
            cursor.execute(installation.DROP_DJANGO_MIGRATIONS_IF_EMPTY)
            cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", [role])
            for revoke in installation.revoke_schemas(tables, role) if cursor.rowcount else []:
                cursor.execute(revoke)
        finally:
            cursor.execute("RESET lock_timeout")
