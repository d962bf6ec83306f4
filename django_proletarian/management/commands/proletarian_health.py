"""`manage.py proletarian_health`: exit code 0 if the worker on this host is healthy, 1 with the reason if not."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_proletarian import health
from django_proletarian.heartbeat import DEFAULT_MAX_AGE


class Command(BaseCommand):
    help = "Exits with 0 if the worker on this host has polled lately, else with 1 and the reason. Asks no database."
    requires_system_checks: list[str] = []  # noqa: RUF012 # as Django declares it; a probe runs often, and some checks ask a database

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--heartbeat-file",
            metavar="PATH",
            help="The file that the worker was told to write. Default: the HEARTBEAT_FILE setting.",
        )
        parser.add_argument(
            "--max-age",
            type=float,
            default=DEFAULT_MAX_AGE,
            metavar="SECONDS",
            help=f"How long ago its last successful poll may be. Default: {DEFAULT_MAX_AGE:g}.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        problem = health.check(options["heartbeat_file"], options["max_age"])
        if problem is not None:
            raise CommandError(problem)
        if options["verbosity"] > 0:
            self.stdout.write("The worker is healthy.")
