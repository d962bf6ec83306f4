"""`make serve`: the shop with a web server and a worker, until Ctrl-C. PORT names the port, 8000 by default."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import django
from django.core.management import call_command

from running import Failed, Process, database, ended_by_itself, heading, say, stopping_on_signals, web_server

USER = PASSWORD = "admin"


def main() -> int:
    try:
        with stopping_on_signals(), ExitStack() as started:
            serve(started, int(os.environ.get("PORT", "8000")))
    except Failed as failure:
        say(f"\n{failure}")
        return 1
    except SystemExit:
        say("\nStopped. Orders and jobs are kept for the next time; make clean forgets them.")
    return 0


def serve(started: ExitStack, port: int) -> None:
    heading("The example shop")
    say(f"PostgreSQL: {started.enter_context(database(Path(__file__).parent.parent / '.demo'))}")
    os.environ["DJANGO_SETTINGS_MODULE"] = "example_project.settings"
    django.setup()
    call_command("migrate", verbosity=0)
    make_superuser()
    web, url = started.enter_context(web_server(port))
    worker = started.enter_context(Process("worker", "proletarian_worker"))
    say(f"""
  Shop   {url}/
  Admin  {url}/admin/   user {USER}, password {PASSWORD}

Ctrl-C stops everything. What happens:
""")
    raise Failed(f"The {ended_by_itself(web, worker).name} ended by itself.")


def make_superuser() -> None:
    # Users can be imported now that Django is set up.
    from django.contrib.auth.models import User  # noqa: PLC0415

    if not User.objects.filter(username=USER).exists():
        User.objects.create_superuser(USER, password=PASSWORD)


if __name__ == "__main__":
    sys.exit(main())
