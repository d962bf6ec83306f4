"""Tables of ours: attempts at jobs, and workers. Released: never edit this file, a change is a new migration."""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState

from django_proletarian import conf, schema
from django_proletarian.tables import quoted

TABLES = conf.tables()


class CreateTable(migrations.RunSQL):
    """RunSQL for PostgreSQL, which leaves the database as it is where the role may not create tables.

    There, beside a Clojure installation's tables, jobs run all the same, and nothing is kept of their attempts.
    """

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if schema_editor.connection.vendor == "postgresql" and self.may_create(schema_editor):
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)

    def may_create(self, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        if schema_editor.collect_sql:
            return True  # for somebody to run who can see for himself what he may do
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(schema.may_create_tables(TABLES))
            # None if a router keeps the job table elsewhere: then these are not created here either.
            return bool(cursor.fetchone() == (True,))


class Migration(migrations.Migration):
    dependencies = [("django_proletarian", "0002_archived_job_finished_at")]

    operations = [
        CreateTable(
            schema.create_job_attempt(TABLES),
            schema.drop_job_attempt(TABLES),
            hints={"model_name": "jobattempt"},
            state_operations=[
                migrations.CreateModel(
                    name="JobAttempt",
                    fields=[
                        (
                            "attempt_id",
                            models.BigAutoField(primary_key=True, serialize=False, verbose_name="attempt id"),
                        ),
                        ("job_id", models.UUIDField(verbose_name="job id")),
                        ("attempt", models.IntegerField(verbose_name="attempt")),
                        ("worker_id", models.TextField(null=True, verbose_name="worker")),
                        ("started_at", models.DateTimeField(verbose_name="started at")),
                        ("finished_at", models.DateTimeField(verbose_name="finished at")),
                        (
                            "outcome",
                            models.TextField(
                                choices=[
                                    ("success", "success"),
                                    ("retry", "retry"),
                                    ("failure", "failure"),
                                    ("crash", "crash"),
                                    ("timeout", "timeout"),
                                    ("interrupted", "interrupted"),
                                    ("cancelled", "cancelled"),
                                ],
                                verbose_name="outcome",
                            ),
                        ),
                        ("exception_class", models.TextField(null=True, verbose_name="exception")),
                        ("message", models.TextField(null=True, verbose_name="message")),
                        ("traceback", models.TextField(null=True, verbose_name="traceback")),
                        ("result", models.TextField(null=True, verbose_name="result, as stored")),
                    ],
                    options={
                        "verbose_name": "attempt",
                        "verbose_name_plural": "attempts",
                        "db_table": quoted(TABLES.job_attempt),
                        "managed": False,
                        "required_db_vendor": "postgresql",
                    },
                ),
            ],
        ),
        CreateTable(
            schema.create_worker(TABLES),
            schema.drop_worker(TABLES),
            hints={"model_name": "worker"},
            state_operations=[
                migrations.CreateModel(
                    name="Worker",
                    fields=[
                        ("process_id", models.UUIDField(primary_key=True, serialize=False, verbose_name="process id")),
                        ("worker_id", models.TextField(verbose_name="worker")),
                        ("host", models.TextField(verbose_name="host")),
                        ("pid", models.IntegerField(verbose_name="process")),
                        ("queues", models.JSONField(verbose_name="queues")),
                        ("processes", models.IntegerField(verbose_name="processes")),
                        ("threads", models.IntegerField(verbose_name="threads")),
                        ("version", models.TextField(verbose_name="version")),
                        ("started_at", models.DateTimeField(verbose_name="started at")),
                        ("heartbeat_at", models.DateTimeField(verbose_name="heartbeat at")),
                        ("running", models.JSONField(verbose_name="running jobs")),
                        ("succeeded", models.BigIntegerField(verbose_name="succeeded")),
                        ("failed", models.BigIntegerField(verbose_name="failed")),
                    ],
                    options={
                        "verbose_name": "worker",
                        "verbose_name_plural": "workers",
                        "db_table": quoted(TABLES.worker),
                        "managed": False,
                        "required_db_vendor": "postgresql",
                    },
                ),
            ],
        ),
    ]
