"""The overview page among the models, and an index of the archive's failures. Released: never edit this file."""

from django.db import migrations, router
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_proletarian import conf, schema
from django_proletarian.tables import quoted

TABLES = conf.tables()


class CreateFailuresIndex(Operation):
    """Build the index while workers go on archiving.

    A role that may build none leaves the archive without: then failures are looked for among all that finished.
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
            schema_editor.execute(schema.create_failures_index(TABLES, concurrently=True, if_not_exists=True), None)
            return
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            cursor.execute(schema.failures_index(TABLES))
            if cursor.rowcount:
                return
            cursor.execute(schema.may_create_finished_at_index(TABLES))
            if cursor.fetchone() != (True,):
                return
            cursor.execute(f"SELECT FROM {quoted(TABLES.archived_job)} LIMIT 1")
            # Building it concurrently waits for every open transaction, which an empty table need not.
            concurrently = bool(cursor.rowcount) and not connection.in_atomic_block
        # One of its name was left behind, unfinished, by a build that was cut off.
        schema_editor.execute(schema.drop_failures_index(TABLES, concurrently=concurrently), None)
        schema_editor.execute(schema.create_failures_index(TABLES, concurrently=concurrently), None)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if self.applies_to(app_label, schema_editor):
            concurrently = not schema_editor.connection.in_atomic_block
            schema_editor.execute(schema.drop_failures_index(TABLES, concurrently=concurrently), None)

    def applies_to(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        connection = schema_editor.connection
        return connection.vendor == "postgresql" and router.allow_migrate(
            connection.alias, app_label, model_name="archivedjob"
        )

    def describe(self) -> str:
        return "Create the archive's index of failures"


class Migration(migrations.Migration):
    # An index can be built without keeping anybody from writing only outside a transaction.
    atomic = False

    dependencies = [("django_proletarian", "0003_attempts_and_workers")]

    operations = [
        migrations.CreateModel(
            name="Overview",
            fields=[],
            options={
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("django_proletarian.job",),
        ),
        CreateFailuresIndex(),
    ]
