"""Permissions for the admin's actions, an index of jobs that wait for a retry. Released: never edit this file."""

from django.db import migrations, router
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_proletarian import conf, schema
from django_proletarian.tables import quoted

TABLES = conf.tables()


class CreateRetryingIndex(Operation):
    """Build the index while workers go on.

    A role that may build none leaves it out: then the admin looks less far for jobs that wait for a retry.
    """

    reversible = True
    reduces_to_sql = True

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        pass

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if not self.applies_to(app_label, schema_editor):
            return
        if schema_editor.collect_sql:
            # For somebody to run who can see for himself what there is.
            schema_editor.execute(schema.create_retrying_index(TABLES, concurrently=True, if_not_exists=True), None)
            return
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            cursor.execute(schema.retrying_index(TABLES))
            if cursor.rowcount:
                return
            cursor.execute(schema.may_create_retrying_index(TABLES))
            if cursor.fetchone() != (True,):
                return
            cursor.execute(f"SELECT FROM {quoted(TABLES.job)} LIMIT 1")
            # Building it concurrently waits for every open transaction, which an empty table need not.
            concurrently = bool(cursor.rowcount) and not connection.in_atomic_block
        # One of its name was left behind, unfinished, by a build that was cut off.
        schema_editor.execute(schema.drop_retrying_index(TABLES, concurrently=concurrently), None)
        schema_editor.execute(schema.create_retrying_index(TABLES, concurrently=concurrently), None)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if self.applies_to(app_label, schema_editor):
            concurrently = not schema_editor.connection.in_atomic_block
            schema_editor.execute(schema.drop_retrying_index(TABLES, concurrently=concurrently), None)

    def applies_to(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        connection = schema_editor.connection
        return connection.vendor == "postgresql" and router.allow_migrate(connection.alias, app_label, model_name="job")

    def describe(self) -> str:
        return "Create the index of jobs that were tried before"


class Migration(migrations.Migration):
    # An index can be built without keeping anybody from writing only outside a transaction.
    atomic = False

    dependencies = [("django_proletarian", "0004_overview")]

    operations = [
        CreateRetryingIndex(),
        migrations.AlterModelOptions(
            name="job",
            options={
                "managed": False,
                "permissions": (
                    ("run_job", "Can run a job now"),
                    ("reschedule_job", "Can reschedule a job"),
                    ("move_job", "Can move a job to another queue"),
                    ("cancel_job", "Can cancel a job"),
                ),
                "required_db_vendor": "postgresql",
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        migrations.AlterModelOptions(
            name="archivedjob",
            options={
                "managed": False,
                "permissions": (
                    ("rerun_archivedjob", "Can run an archived job again"),
                    ("copy_archivedjob", "Can run a copy of an archived job"),
                ),
                "required_db_vendor": "postgresql",
                "verbose_name": "archived job",
                "verbose_name_plural": "archived jobs",
            },
        ),
    ]
