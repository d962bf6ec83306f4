"""The app: imports every installed app's `jobs.py`, registers checks, and makes the tables where no migration does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks as django_checks
from django.db import connections, router
from django.db.migrations.loader import MigrationLoader
from django.db.models.signals import pre_migrate
from django.utils.module_loading import autodiscover_modules, import_string
from django.utils.translation import gettext_lazy as _

from django_proletarian import conf, indexes, schema


class ProletarianConfig(AppConfig):
    name = "django_proletarian"
    verbose_name = _("Proletarian jobs")

    def ready(self) -> None:
        # Checks know the models, and models can't be imported before all apps are.
        from django_proletarian.checks import check_database, check_handlers, check_settings  # noqa: PLC0415
        from django_proletarian.deployment_checks import check_deployment, check_retention  # noqa: PLC0415

        django_checks.register(check_settings)
        django_checks.register(check_handlers)
        django_checks.register(check_database)
        django_checks.register(check_retention, deploy=True)
        django_checks.register(check_deployment, django_checks.Tags.database, deploy=True)
        pre_migrate.connect(create_tables_without_migrations, sender=self)
        autodiscover_modules("jobs")
        import_task_backends()


def import_task_backends() -> None:
    """Import the backends that TASKS names: workers run tasks once ours is imported."""
    backends = getattr(settings, "TASKS", None)
    for backend in backends.values() if isinstance(backends, Mapping) else ():
        # What can't be imported is told by Django, when the first task is declared or checked.
        with suppress(ImportError, AttributeError, TypeError, KeyError):
            import_string(backend["BACKEND"])


def create_tables_without_migrations(sender: AppConfig, using: str, **kwargs: Any) -> None:
    """Make the tables where MIGRATION_MODULES or `--nomigrations` has switched our migrations off."""
    module, _explicit = MigrationLoader.migrations_module(sender.label)
    connection = connections[using]
    if module is not None or connection.vendor != "postgresql" or not router.allow_migrate(using, sender.label):
        return
    tables = conf.tables()
    with connection.cursor() as cursor:
        cursor.execute(schema.create_schemas(tables))
        cursor.execute(schema.create_job(tables))
        cursor.execute(schema.create_archived_job(tables))
        cursor.execute(schema.create_finished_at_index_if_missing(tables))
        cursor.execute(indexes.FAILURES.create_if_missing(tables))
        cursor.execute(indexes.TRIED_BEFORE.create_if_missing(tables))
        cursor.execute(schema.create_job_attempt(tables))
        cursor.execute(schema.create_worker(tables))
