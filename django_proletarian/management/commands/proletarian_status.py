"""`manage.py proletarian_status`: the overview in a terminal, once or again and again. The numbers are `overview`'s."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DjangoDatabaseError

from django_proletarian import conf, durations, names
from django_proletarian.management.databases import database_of
from django_proletarian.overview import Number, Overview, overview

CLEAR_SCREEN = "\x1b[2J\x1b[H"


class Command(BaseCommand):
    help = "Shows what is due, scheduled, running and finished, by queue, and which workers are alive."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--json", action="store_true", help="As JSON, one line.")
        add(
            "--watch",
            type=seconds,
            nargs="?",
            const=2.0,
            metavar="SECONDS",
            help="Show it again every so many seconds, 2 if left out, until Ctrl-C.",
        )
        add("--database", metavar="ALIAS", help="Database that holds the queue. Default: what the routers say.")

    def handle(self, *args: Any, **options: Any) -> None:
        database = database_of(options["database"])
        try:
            while True:
                self.show(database, as_json=options["json"], clear=options["watch"] is not None)
                if options["watch"] is None:
                    return
                time.sleep(options["watch"])
        except KeyboardInterrupt:
            return
        except DjangoDatabaseError as error:
            raise CommandError(f'Database "{database}" failed: {str(error).strip()}') from error

    def show(self, database: str, *, as_json: bool, clear: bool) -> None:
        settings = conf.settings()
        taken = overview(database, settings.tables, {settings.queue, *settings.queues})
        if as_json:
            text = json.dumps(dataclasses.asdict(taken), default=str)
        else:
            text = "\n".join(described(taken, database))
            if clear and self.stdout.isatty():
                text = CLEAR_SCREEN + text
        self.stdout.write(text)
        self.stdout.flush()


def described(taken: Overview, database: str) -> Iterator[str]:
    """The overview in lines."""
    yield f'Database "{database}", {taken.taken_at:%Y-%m-%d %H:%M:%S %Z}'
    yield ""
    yield from as_table([["queue", "due", "oldest due", "scheduled"], *queue_rows(taken)])
    yield ""
    yield from as_table([["finished", "status", "last hour", "last day"], *finished_rows(taken)])
    if taken.finished is None:
        yield "(not counted: the archive has no index on finished_at; proletarian_prune tells how to build it)"
    yield f"Archived in all: {'unknown before an ANALYZE' if taken.archived is None else f'~{taken.archived:,}'}"
    yield ""
    if taken.workers:
        yield from as_table([["worker", "host", "connected", "threads", "running"], *worker_rows(taken)])
    else:
        yield "No worker is connected."
    if taken.progressing:
        yield ""
        yield from as_table([["running job", "worker", "for", "progress"], *progress_rows(taken)])
    if has_estimates(taken):
        yield "~ is an estimate."


def queue_rows(taken: Overview) -> list[list[str]]:
    return [
        [
            names.shown(state.queue),
            shown(state.due),
            "-" if state.oldest_due is None else durations.shown(state.oldest_due),
            shown(state.scheduled),
        ]
        for state in taken.queues
    ]


def finished_rows(taken: Overview) -> list[list[str]]:
    return [
        [names.shown(jobs.queue), jobs.status, shown(jobs.last_hour), shown(jobs.last_day)]
        for jobs in taken.finished or ()
    ]


def worker_rows(taken: Overview) -> list[list[str]]:
    return [
        [
            worker.worker_id,
            worker.host or "-",
            "-"
            if worker.connected_at is None
            else durations.shown((taken.taken_at - worker.connected_at).total_seconds()),
            str(worker.connections),
            "?" if worker.running is None else str(worker.running),
        ]
        for worker in taken.workers
    ]


def progress_rows(taken: Overview) -> list[list[str]]:
    return [
        [
            f"{job.job_type or '?'} {job.job_id}",
            job.worker_id or "-",
            "-" if job.began_at is None else durations.shown((taken.taken_at - job.began_at).total_seconds()),
            str(job.progress),
        ]
        for job in taken.progressing
    ]


def shown(number: Number) -> str:
    return f"{'' if number.is_exact else '~'}{number.value:,}"


def has_estimates(taken: Overview) -> bool:
    numbers = [number for state in taken.queues for number in (state.due, state.scheduled)]
    numbers += [number for jobs in taken.finished or () for number in (jobs.last_hour, jobs.last_day)]
    return taken.archived is not None or not all(number.is_exact for number in numbers)


def as_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines in columns: the first to the left, the others to the right; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def seconds(text: str) -> float:
    try:
        value = durations.parse(text).total_seconds()
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above zero")
    return value
