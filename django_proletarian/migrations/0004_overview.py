"""The overview page among the models, and an index of the archive's failures. Released: never edit this file."""

from django.db import migrations

from django_proletarian import conf
from django_proletarian.indexes import FAILURES, CreateIndex


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
        # Without it failures are looked for among all that finished.
        CreateIndex(
            FAILURES, conf.tables(), model_name="archivedjob", description="Create the archive's index of failures"
        ),
    ]
