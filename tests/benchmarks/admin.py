"""`python -m tests.benchmarks.admin`: how long the admin's pages keep the database, with 10,000,000 archived jobs.

Every link of a list to itself is followed, that is each filter, order and page, and from there once more, which makes
pairs of them. So what is new in the admin is measured without a word here.

A page takes as long as its statements, from the call to the last row. Of several looks the quickest counts; the first,
which may find nothing in memory, is told. Pages over the limit are named with their slowest statement, and the exit
code is 1.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import django
import psycopg

from tests.benchmarks import admin_rows
from tests.postgres import Postgres

LIMIT = 0.3  # seconds
PATIENCE = 20  # seconds that one statement may take, so that a bad page does not keep all others waiting
LISTS = "/admin/django_proletarian/"


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at a page: what its statements took, in seconds, and how long the server's process was at work."""

    statements: list[tuple[float, str]]
    processor: float

    @property
    def seconds(self) -> float:
        return sum(seconds for seconds, _ in self.statements)


@dataclass(kw_only=True)
class Page:
    name: str
    see: Callable[[], str]  # returns its text, or raises
    text: str = ""
    looks: list[Look] = field(default_factory=list)
    error: str | None = None

    def look(self) -> None:
        from django.db import connection

        statements: list[tuple[float, str]] = []

        def measured(execute: Callable[..., Any], statement: str, *rest: Any) -> Any:
            began = time.perf_counter()
            try:
                return execute(statement, *rest)
            finally:
                statements.append((time.perf_counter() - began, statement))

        before = processor_seconds()
        with connection.execute_wrapper(measured):
            try:
                self.text = self.see()
            except Exception as error:
                self.error = f"{type(error).__name__}: {str(error).strip()}"
        self.looks.append(Look(statements=statements, processor=processor_seconds() - before))

    @property
    def best(self) -> Look:
        """The look that the least disturbed: the machine may do other things too."""
        return min(self.looks, key=lambda look: look.seconds)

    @property
    def seconds(self) -> float:
        return self.best.seconds


def processor_seconds() -> float:
    """Processor time, until now, of the server's process that serves this one; 0 where the system does not tell."""
    from django.db import connection

    connection.ensure_connection()
    try:
        schedule = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat").read_text()
    except OSError:
        return 0.0
    return int(schedule.split()[0]) / 1e9


# -- Pages -----------------------------------------------------------------------------------------------------------


class Site:
    """The admin as a superuser sees it, and what else reads the tables."""

    def __init__(self, url: str) -> None:
        from django.contrib.auth.models import User
        from django.test import Client

        self._url = url
        self._client = Client()
        self._client.force_login(User.objects.create_superuser("boss"))

    def page(self, name: str, address: str, **headers: str) -> Page:
        def see() -> str:
            response = self._client.get(address, headers=headers)
            if response.status_code != 200:
                raise RuntimeError(f"{address} answers with {response.status_code}")
            return str(response.content.decode(errors="replace"))

        return Page(name=name, see=see)

    def named(self) -> Iterator[Page]:
        """The pages that have a name of their own."""
        from django.conf import settings

        yield self.page("overview", f"{LISTS}overview/")
        yield self.page("/metrics", "/proletarian/metrics", Authorization=f"Bearer {settings.METRICS_TOKEN}")
        yield Page(name="proletarian_status", see=status)
        for kind, job_id in admin_rows.ids(self._url).items():
            yield self.page(f"details: {kind}", f"{LISTS}{kind.partition('/')[0]}/{job_id}/change/")
            yield self.page(f"search by id: {kind}", f"{LISTS}{kind.partition('/')[0]}/?q={job_id}")
        for model in ("job", "archivedjob"):
            # What is there, and what is nowhere.
            for text in ("person-77@", "nowhere@"):
                for queue in admin_rows.QUEUES:
                    query = urlencode({"queue": queue, "q": text})
                    yield self.page(f"{model}: search for {text} in {queue}", f"{LISTS}{model}/?{query}")


def links(page: Page) -> set[str]:
    """The queries of the links from a list to itself, parameters in order."""
    found = {unescape(link) for link in re.findall(r'href="\?([^"#]*)"', page.text)}
    return {urlencode(sorted(parse_qsl(link))) for link in found}


def status() -> str:
    from django.core.management import call_command

    call_command("proletarian_status", stdout=(output := StringIO()))
    return output.getvalue()


# -- The run ---------------------------------------------------------------------------------------------------------


def measured(site: Site, rounds: int, *, pairs: bool) -> Iterator[Page]:
    """Every page, measured. The first look of each is told apart, since it finds nothing in memory."""
    for page in site.named():
        for _ in range(rounds):
            page.look()
        yield page
    for model in ("job", "archivedjob"):
        seen: set[str] = set()
        todo = {""}
        for depth in range(3 if pairs else 2):
            following: set[str] = set()
            for query in sorted(todo - seen):
                page = site.page(f"{model}: {query or 'list'}", f"{LISTS}{model}/?{query}")
                page.look()
                # Of a pair, a second look only if it seems slow: the first may have found nothing in memory.
                for _ in range(rounds - 1 if depth < 2 or page.seconds > LIMIT else 0):
                    page.look()
                following |= links(page)
                yield page
            seen |= todo
            todo = following


def report(pages: list[Page], rounds: int) -> str:
    lines = [f"{'page':70}{'statements':>11}{'first ms':>10}{f'best of {rounds}':>11}{'processor':>11}"]
    few = [page for page in pages if len(page.looks) == rounds]
    for page in sorted(few, key=lambda page: -page.seconds)[:60]:
        first, number = page.looks[0], len(page.looks[-1].statements)
        lines.append(
            f"{page.name[:69]:70}{number:>11}{first.seconds * 1000:>10.1f}{page.seconds * 1000:>11.1f}"
            f"{page.best.processor * 1000:>11.1f}"
        )
    seconds = sorted(page.seconds for page in pages)
    lines.append(
        f"{len(pages)} pages: half within {statistics.median(seconds) * 1000:.1f} ms, "
        f"the slowest {seconds[-1] * 1000:.1f} ms; the limit is {LIMIT * 1000:.0f} ms."
    )
    for page in pages:
        if page.error is not None:
            lines.append(f"\nFAILED {page.name}: {page.error}")
        if page.seconds > LIMIT:
            taken, statement = max(page.best.statements)
            lines.append(
                f"\nTOO SLOW {page.name}: {page.seconds:.2f} s, of which {taken:.2f} s are\n{statement[:1500]}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.admin",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--archived", type=int, default=10_000_000, metavar="N", help="Archived jobs. Default: 10,000,000.")
    add("--jobs", type=int, default=1_000_000, metavar="N", help="Jobs in the queue. Default: 1,000,000.")
    add("--rounds", type=int, default=3, metavar="N", help="How often each page is looked at. Default: 3.")
    add("--no-analyze", action="store_true", help="With tables that no ANALYZE has seen.")
    add("--no-pairs", action="store_true", help="Each filter alone.")
    add(
        "--directory",
        type=Path,
        metavar="DIR",
        help="Where the server keeps its data, 6 GB. Default: as tempfile says.",
    )
    options = parser.parse_args()

    # A kill must end the server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    if options.directory is not None:
        tempfile.tempdir = str(options.directory)
    settings = {"autovacuum": "off", "shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}
    with Postgres(**settings) as server:
        os.environ["DATABASE_URL"] = server.url
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.benchmarks.admin_settings"
        django.setup()
        from django.core.management import call_command
        from django.test.utils import setup_test_environment

        from django_proletarian import job_handler

        for job_type in admin_rows.KNOWN_TYPES:
            job_handler(job_type)(lambda payload: None)
        call_command("migrate", verbosity=0)
        began = time.monotonic()
        admin_rows.fill(server.url, archived_jobs=options.archived, jobs=options.jobs, analyze=not options.no_analyze)
        print(f"Filled in {time.monotonic() - began:.0f} s.", flush=True)
        setup_test_environment()
        with psycopg.connect(server.url) as worker:
            worker.execute(f"ALTER ROLE postgres SET statement_timeout = '{PATIENCE}s'".encode())
            worker.commit()
            admin_rows.lock_some(worker)
            pages = list(measured(Site(server.url), options.rounds, pairs=not options.no_pairs))
            [(size,)] = worker.execute("SELECT pg_size_pretty(pg_database_size(current_database()))").fetchall()
            [(version,)] = worker.execute("SELECT current_setting('server_version')").fetchall()
        django.db.connections.close_all()
    print(
        f"PostgreSQL {version}, {options.archived:,} archived jobs, {options.jobs:,} jobs, {size}, "
        f"{'never analyzed' if options.no_analyze else 'analyzed'}; load {os.getloadavg()[0]:.1f}"
    )
    print(report(pages, options.rounds))
    sys.exit(any(page.error is not None or page.seconds > LIMIT for page in pages))


if __name__ == "__main__":
    main()
