"""Whether the worker on this host is alive: what `manage.py proletarian_health` says, as a function."""

from __future__ import annotations

import time
from pathlib import Path

from django_proletarian import conf, heartbeat
from django_proletarian.heartbeat import DEFAULT_MAX_AGE


def check(heartbeat_file: str | Path | None = None, max_age: float = DEFAULT_MAX_AGE) -> str | None:
    """Why the worker on this host is not healthy, in one line; None if it is. Opens no connection to a database.

    It is healthy if each of its processes has polled with success within `max_age` seconds, or has all its threads busy
    with jobs. `heartbeat_file` None is the HEARTBEAT_FILE setting's, or the project's own.
    """
    path = conf.heartbeat_path(heartbeat_file)
    if path is None:
        return "No heartbeat file is configured: HEARTBEAT_FILE is empty."
    try:
        beat = heartbeat.read(path)
    except FileNotFoundError:
        return f"No worker runs on this host: there is no {path}."
    except (OSError, ValueError) as error:
        return f"The worker's heartbeat can't be read: {error}"
    return heartbeat.problem(beat, time.time(), max_age)
