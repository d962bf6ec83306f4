"""`make demo`: the shop for real, from an empty database to an archive of jobs, and a check of everything it shows.

A web server and a worker run as processes of their own. Ten orders are placed over HTTP, one of which is rolled back.
The worker is stopped while it writes a report, and another one writes it. Exits with 1 if anything is not as
it must be.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack

import django
from django.core.management import call_command

from running import Failed, Process, database, free_port, heading, no_traceback, say, stopping_on_signals, web_server


def main() -> int:
    began = time.monotonic()
    try:
        with stopping_on_signals(), ExitStack() as started:
            demonstrate(started)
    except Failed as failure:
        say(f"\nFAILED: {failure}")
        return 1
    say(f"\nAll is as it must be, after {time.monotonic() - began:.0f} seconds, and nothing is left running.")
    say("To click through it yourself: make serve")
    return 0


def demonstrate(started: ExitStack) -> None:
    heading("A database, a worker, a web server")
    say(f"PostgreSQL: {started.enter_context(database(None))}")
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    django.setup()
    call_command("migrate", verbosity=0)
    say("Migrated, which made the tables proletarian.job and proletarian.archived_job.")
    worker = started.enter_context(Process("worker", "proletarian_worker", shows=no_traceback))
    _, url = started.enter_context(web_server(free_port(), shows=lambda line: "POST" in line))
    say(f"Web server: {url}")

    # Its models can be imported now that Django is set up.
    from story import Story  # noqa: PLC0415

    story = Story(url)
    heading("Ten orders: each is saved and its two jobs enqueued in one transaction")
    story.place_orders()
    heading("A slow report, and its worker is stopped in the middle of it")
    story.interrupt_report(worker)
    heading("A second worker does what is left")
    story.finish_with(started.enter_context(Process("worker 2", "proletarian_worker", shows=no_traceback)))
    heading("What the archive says")
    story.show_archive()
    heading("What must be true")
    story.check()


if __name__ == "__main__":
    sys.exit(main())
