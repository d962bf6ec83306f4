"""Which database a command works on."""

from __future__ import annotations

from django.core.management.base import CommandError
from django.db import connections, router

from django_proletarian.models import Job
from django_proletarian.suggestions import did_you_mean


def database_of(alias: str | None) -> str:
    """`alias`, or where the routers send jobs. Raises CommandError if that is no PostgreSQL."""
    chosen = router.db_for_write(Job) if alias is None else alias
    if chosen not in connections:
        meant = did_you_mean(chosen, connections)
        raise CommandError(f'There is no database "{chosen}". {meant}DATABASES has: {", ".join(connections)}.')
    vendor = connections[chosen].vendor
    if vendor != "postgresql":
        raise CommandError(f'Database "{chosen}" is {vendor}, and jobs live in PostgreSQL only. Give --database ALIAS.')
    return chosen
