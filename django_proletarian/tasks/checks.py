"""System checks of a TASKS entry that names our backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error
from django.db import connections

from django_proletarian.suggestions import did_you_mean

OPTIONS = ("STORE_RESULTS", "DATABASE")
PATH = "django_proletarian.tasks.ProletarianBackend"


def problems(alias: str, queues: Iterable[object], options: object) -> Iterator[CheckMessage]:
    """Each wrong value, with a remedy."""
    where = f"TASKS[{alias!r}]"
    if not apps.is_installed("django_proletarian"):
        yield _error(
            "E040",
            f"{where} is {PATH}, and django_proletarian is not in INSTALLED_APPS.",
            'INSTALLED_APPS = [..., "django_proletarian"], then migrate.',
        )
    for queue in queues:
        if not isinstance(queue, str) or queue in ("", ":", "proletarian/default") or "\x00" in queue:
            yield _error(
                "E041",
                f"{where}['QUEUES'] has {queue!r}, which can't be a task's queue.",
                f'For example: TASKS = {{"{alias}": {{"BACKEND": "{PATH}", "QUEUES": ["default", "mail"]}}}}, '
                "or [] for any name.",
            )
    if not isinstance(options, dict):
        yield _error(
            "E042",
            f"{where}['OPTIONS'] is {options!r}, not a dict.",
            f'For example: TASKS = {{"{alias}": {{"BACKEND": "{PATH}", "OPTIONS": {{"STORE_RESULTS": False}}}}}}.',
        )
        return
    for option in options:
        if option not in OPTIONS:
            yield _error(
                "E042",
                f"{where}['OPTIONS'] has no option {option!r}.",
                f"{did_you_mean(str(option), OPTIONS)}It has {', '.join(OPTIONS)}.",
            )
    if not isinstance(options.get("STORE_RESULTS", True), bool):
        yield _error(
            "E043",
            f"{where}['OPTIONS']['STORE_RESULTS'] is {options['STORE_RESULTS']!r}, neither True nor False.",
            '"OPTIONS": {"STORE_RESULTS": False} leaves out what tasks return.',
        )
    database = options.get("DATABASE")
    if database is not None and not _is_postgresql(database):
        yield _error(
            "E044",
            f"{where}['OPTIONS']['DATABASE'] is {database!r}, which is no PostgreSQL database in DATABASES.",
            f'For example: "OPTIONS": {{"DATABASE": "default"}}. DATABASES has {", ".join(django_settings.DATABASES)}.',
        )


def _is_postgresql(alias: object) -> bool:
    return isinstance(alias, str) and alias in connections.settings and connections[alias].vendor == "postgresql"


def _error(check_id: str, message: str, hint: str) -> CheckMessage:
    return Error(message, hint=hint, id=f"django_proletarian.{check_id}")
