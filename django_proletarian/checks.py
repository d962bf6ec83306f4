"""System checks: what is wrong with the settings or the databases, before a job is lost over it."""

from __future__ import annotations

from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Error
from django.db import connections, router

from django_proletarian import conf
from django_proletarian.handlers import registered
from django_proletarian.models import Job


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """E001 to E038: PROLETARIAN, key by key."""
    return [
        Error(problem.message, hint=problem.hint, id=f"django_proletarian.{problem.check_id}")
        for problem in conf.problems()
    ]


def check_handlers(**kwargs: Any) -> list[CheckMessage]:
    """E039: a handler wants two things that exclude each other."""
    return [
        Error(
            f'Handler {handler.path} of "{handler.job_type}" is atomic and has a lease: an atomic handler runs in the '
            "transaction that archives its job, and a lease is for running while no transaction is open.",
            hint=(
                "Leave one out: atomic=True for short jobs; lease=… for long ones, which write in transactions of "
                "their own."
            ),
            id="django_proletarian.E039",
        )
        for handler in registered()
        if handler.atomic and handler.lease is not None
    ]


def check_database(**kwargs: Any) -> list[CheckMessage]:
    """W001: `enqueue` without `using` would go to a database that is not PostgreSQL."""
    alias = router.db_for_write(Job)
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return []
    return [
        checks.Warning(
            f'Jobs would go to database "{alias}", which is {vendor}; jobs live in PostgreSQL only.',
            hint=(
                "Route the app to a PostgreSQL alias with DATABASE_ROUTERS, or give using= and --database everywhere "
                'and silence this: SILENCED_SYSTEM_CHECKS = ["django_proletarian.W001"].'
            ),
            id="django_proletarian.W001",
        )
    ]
