#!/usr/bin/env python
"""Django's command line for the example shop: `example_project/manage.py runserver`, `… proletarian_worker`."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    if "DATABASE_URL" not in os.environ:
        # Here and not in the settings: programs that only read those, as mypy does, should start no server.
        from example_project import embedded

        os.environ["DATABASE_URL"] = embedded.start(Path(__file__).resolve().parent.parent / ".demo").get_uri()
    execute_from_command_line(sys.argv)
