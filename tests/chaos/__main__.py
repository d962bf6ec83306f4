"""Chaos: thousands of jobs, two supervisors with all their processes, and everything that can be killed is.

    make chaos
    python -m tests.chaos --seed 7 --jobs 2000 --seconds 60

Prints what it will do, does it, lets the workers finish what is left, stops them, and then compares what is in the
database with what must be there. Exits with 1 if anything differs, says what, and keeps all logs. The same seed makes
the same plan, though not the same course of events: that depends on the machine.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import django
from django.core.management import call_command
from django.db import connections

from tests.chaos.plan import make_plan
from tests.chaos.world import SETTINGS, THREADS_OF_ALL, World


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seed", type=int, metavar="N", help="Of the plan. Default: by chance.")
    add("--jobs", type=int, metavar="N", default=50_000, help="Default: 50,000.")
    add("--seconds", type=float, metavar="S", default=600, help="How long things happen. Default: 600.")
    add("--directory", type=Path, metavar="DIR", help="For logs, which are kept then. Default: a temporary one.")
    options = parser.parse_args()

    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    plan = make_plan(seed, jobs=options.jobs, seconds=options.seconds, threads=THREADS_OF_ALL)
    print(plan, flush=True)

    # A kill must end the server and the workers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    directory = options.directory or Path(tempfile.mkdtemp(prefix="proletarian-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    with World(directory) as world:
        os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        connections.close_all()
        # What loads models can't load before Django is set up.
        from tests.chaos.course import run

        well = run(plan, world, say)
    if well and options.directory is None:
        shutil.rmtree(directory)
    else:
        say(f"Logs are in {directory}")
    say("All is well." if well else f"FAILED with seed {seed}.")
    sys.exit(not well)


def say(text: str) -> None:
    """Print it at once: whoever watches a log wants to know what happens now."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


if __name__ == "__main__":
    main()
