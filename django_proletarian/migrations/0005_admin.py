"""Permissions for the admin's actions, an index of jobs that wait for a retry. Released: never edit this file."""

from django.db import migrations

from django_proletarian import conf
from django_proletarian.indexes import TRIED_BEFORE, CreateIndex


class Migration(migrations.Migration):
    # An index can be built without keeping anybody from writing only outside a transaction.
    atomic = False

    dependencies = [("django_proletarian", "0004_overview")]

    operations = [
        # Without it the admin looks less far for jobs that wait for a retry.
        CreateIndex(
            TRIED_BEFORE, conf.tables(), model_name="job", description="Create the index of jobs that were tried before"
        ),
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
