"""`manage.py proletarian_prune`: options, progress and summary. The work is in `retention`."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DjangoDatabaseError

from django_proletarian import conf, durations, names
from django_proletarian.connection import PrivateConnection
from django_proletarian.management.databases import database_of
from django_proletarian.retention import Batch, CanNotPrune, Old, count_old, prune_batch

REST = 2.0  # times as long as a batch took, before the next: workers keep nine tenths of their speed
OTHERS_TURN = 0.05  # seconds to wait while another session prunes, or holds one of the rows


class Command(BaseCommand):
    help = "Deletes archived jobs that finished long enough ago, the oldest first, in short transactions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--older-than",
            type=duration,
            required=True,
            metavar="DURATION",
            help="How long ago they finished: 30d, 12h, 90m or 45s; a bare number is seconds.",
        )
        add("--status", choices=["success", "failure"], help="Only jobs that ended so. Default: both.")
        add(
            "--queue",
            action="append",
            dest="queues",
            metavar="NAME",
            help="Only jobs of this queue, whatever their priority; repeat for several. Default: all queues.",
        )
        add(
            "--batch-size",
            type=positive,
            default=5000,
            metavar="N",
            help="Rows to look at, and so to delete at most, in one transaction. Default: 5000.",
        )
        add(
            "--rest",
            type=not_negative,
            default=REST,
            metavar="FACTOR",
            help=(
                "How long to rest after each batch, in the time that it took, so that workers hardly notice; 0 deletes "
                "as fast as it can. Default: 2."
            ),
        )
        add("--dry-run", action="store_true", help="Delete nothing; say how many would be deleted.")
        add("--database", metavar="ALIAS", help="Database that holds the archive. Default: what the routers say.")

    def handle(self, *args: Any, **options: Any) -> None:
        database = database_of(options["database"])
        queues = None if options["queues"] is None else tuple(map(names.parse, options["queues"]))
        old = Old(
            older_than=options["older_than"].total_seconds(),
            status=options["status"],
            queues=queues,
            levels=conf.levels_of(queues or ()),
        )
        try:
            with PrivateConnection(database, "proletarian_prune") as connection:
                if options["dry_run"]:
                    self.tell_how_many(connection, old)
                else:
                    self.prune(connection, old, options["batch_size"], options["rest"], options["verbosity"])
        except CanNotPrune as error:
            raise CommandError(str(error)) from error
        except (psycopg.Error, DjangoDatabaseError) as error:
            raise CommandError(f'Database "{database}" failed: {str(error).strip()} Run it again to go on.') from error

    def prune(self, connection: PrivateConnection, old: Old, batch_size: int, rest: float, verbosity: int) -> None:
        """Delete all of `old`, and say how many; on a terminal, how far it is, too."""
        shows_progress = verbosity > 0 and self.stdout.isatty()
        pruned = 0
        try:
            for batch in batches(connection, old, batch_size, rest):
                pruned += batch.pruned
                if shows_progress:
                    self.stdout.write(f"\r{pruned:,} pruned …", ending="")
                    self.stdout.flush()
        finally:
            # Batches that are committed stay so, whatever ends the command.
            if shows_progress:
                self.stdout.write("\r", ending="")
            if verbosity > 0:
                self.stdout.write(f"{pruned:,} archived {jobs(pruned)} pruned{described(old)}.")

    def tell_how_many(self, connection: PrivateConnection, old: Old) -> None:
        """Say how many archived jobs are `old`."""
        count = count_old(connection, conf.settings().tables, old, conf.now())
        if count.is_exact:
            self.stdout.write(f"{count.rows:,} archived {jobs(count.rows)} would be pruned{described(old)}.")
        else:
            self.stdout.write(
                f"About {count.rows:,} archived jobs would be pruned{described(old)}. That is the server's estimate, "
                "as good as its last ANALYZE; so many are not counted."
            )


def batches(connection: PrivateConnection, old: Old, batch_size: int, rest: float) -> Iterator[Batch]:
    """Prune batch after batch, each when no other session prunes, and rest for `rest` times as long as it took."""
    tables, place = conf.settings().tables, None
    while True:
        began = monotonic()
        try:
            batch = prune_batch(connection, tables, old, conf.now(), place=place, batch_size=batch_size)
        except psycopg.errors.LockNotAvailable:
            connection.close()
            batch = None  # a job that ran again is just replacing one of those rows
        if batch is None:
            sleep(OTHERS_TURN)
            continue
        place = batch.place
        yield batch
        if batch.is_last:
            return
        sleep((monotonic() - began) * rest)


def described(old: Old) -> str:
    """Which jobs those are, in words."""
    words = f" that finished more than {durations.shown(old.older_than)} ago"
    if old.status is not None:
        words += f" with status {old.status}"
    if old.queues is not None:
        words += f" in {', '.join(names.shown(queue) for queue in old.queues)}"
    return words


def jobs(count: int) -> str:
    return "job" if count == 1 else "jobs"


def not_negative(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1000:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1000")
    return number


def duration(text: str) -> timedelta:
    try:
        return durations.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)
