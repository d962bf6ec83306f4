"""`python -m tests.benchmarks`: start a server, measure every figure beside its reference, print a table.

The workers are real processes that log at WARNING. They start against a locked table, so that their start is not
counted, and their speed is read from the archive: from the first job's finished_at to the last's. Latency counts from
the call of enqueue to the handler's first line. The numbers mean something only on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

import django
from django.core.management import call_command

from tests.benchmarks.server import Server

DISK = Path("/var/tmp")  # /tmp may be in memory, where a commit costs nothing


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rounds", type=int, metavar="N", help="How often each figure is measured. Default: 5, or 1 with --quick.")
    add("--only", action="append", metavar="NAME", help="Measure this figure only; repeat for several.")
    add("--quick", action="store_true", help="Fewer jobs: a look at it all in two minutes, not a measurement.")
    add("--json", type=Path, metavar="FILE", help="Write all that was measured to this file.")
    add("--synchronous-commit", choices=["on", "off"], default="on", help="The server's setting. Default: on.")
    add("--directory", type=Path, metavar="DIR", help=f"Where the server keeps its data. Default: {DISK}, on a disk.")
    options = parser.parse_args()

    # A kill must end the server and the workers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    directory = options.directory or (DISK if DISK.is_dir() else None)
    with Server(directory, options.synchronous_commit) as server:
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.benchmarks.project.settings"
        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        # What imports handlers imports their models, which can't load before Django is set up.
        from tests.benchmarks.figures import FIGURES
        from tests.benchmarks.report import as_json, as_text, head
        from tests.benchmarks.run import run

        known = [figure.name for figure in FIGURES]
        only = options.only or known
        if not set(only) <= set(known):
            parser.error(f"--only takes one of: {', '.join(known)}")
        rounds = options.rounds or (1 if options.quick else 5)
        about = head(server, rounds=rounds, quick=options.quick)
        results = run(server, only, rounds=rounds, quick=options.quick)
    print(as_text(about, results))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(about, results), indent=2) + "\n")
    sys.exit(any(result.error is not None for result in results))


if __name__ == "__main__":
    main()
