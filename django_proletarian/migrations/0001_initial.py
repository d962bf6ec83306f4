"""Proletarian's tables, made or adopted. Released: never edit this file, a change is a new migration."""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState

import django_proletarian.fields
from django_proletarian import conf, schema
from django_proletarian.tables import quoted

TABLES = conf.tables()


class RunPostgreSQL(migrations.RunSQL):
    """RunSQL that leaves databases of other vendors alone. (It asks the routers by itself.)"""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        RunPostgreSQL(schema.create_schemas(TABLES), schema.drop_schemas(TABLES)),
        RunPostgreSQL(
            schema.create_job(TABLES),
            schema.drop_job(TABLES),
            hints={"model_name": "job"},
            state_operations=[
                migrations.CreateModel(
                    name="Job",
                    fields=[
                        ("job_id", models.UUIDField(primary_key=True, serialize=False, verbose_name="job id")),
                        ("queue", django_proletarian.fields.NameField(verbose_name="queue")),
                        ("job_type", django_proletarian.fields.NameField(verbose_name="job type")),
                        ("payload_text", models.TextField(db_column="payload", verbose_name="payload, as stored")),
                        ("attempts", models.IntegerField(verbose_name="attempts")),
                        ("enqueued_at", models.DateTimeField(verbose_name="enqueued at")),
                        ("process_at", models.DateTimeField(verbose_name="process at")),
                    ],
                    options={
                        "verbose_name": "job",
                        "verbose_name_plural": "jobs",
                        "db_table": quoted(TABLES.job),
                        "abstract": False,
                        "managed": False,
                        "required_db_vendor": "postgresql",
                    },
                ),
            ],
        ),
        RunPostgreSQL(
            schema.create_archived_job(TABLES),
            schema.drop_archived_job(TABLES),
            hints={"model_name": "archivedjob"},
            state_operations=[
                migrations.CreateModel(
                    name="ArchivedJob",
                    fields=[
                        ("job_id", models.UUIDField(primary_key=True, serialize=False, verbose_name="job id")),
                        ("queue", django_proletarian.fields.NameField(verbose_name="queue")),
                        ("job_type", django_proletarian.fields.NameField(verbose_name="job type")),
                        ("payload_text", models.TextField(db_column="payload", verbose_name="payload, as stored")),
                        ("attempts", models.IntegerField(verbose_name="attempts")),
                        ("enqueued_at", models.DateTimeField(verbose_name="enqueued at")),
                        ("process_at", models.DateTimeField(verbose_name="process at")),
                        ("status", django_proletarian.fields.NameField(verbose_name="status")),
                        ("finished_at", models.DateTimeField(verbose_name="finished at")),
                    ],
                    options={
                        "verbose_name": "archived job",
                        "verbose_name_plural": "archived jobs",
                        "db_table": quoted(TABLES.archived_job),
                        "abstract": False,
                        "managed": False,
                        "required_db_vendor": "postgresql",
                    },
                ),
            ],
        ),
    ]
