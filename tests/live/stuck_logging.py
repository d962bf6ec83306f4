"""Settings of a worker whose processes never have their logging set up: that stops with the lock of a handler held."""

import logging
import multiprocessing
import threading
from collections.abc import Mapping

from tests.settings import *  # noqa: F403

LOGGING_CONFIG = "tests.live.stuck_logging.set_up"
LOGGING = {"version": 1}


def set_up(logging_settings: Mapping[str, object]) -> None:
    """Do nothing in the supervisor, and in its processes nothing for ever."""
    if multiprocessing.parent_process() is None:
        return
    handler = logging.StreamHandler()
    handler.acquire()
    print("stuck", flush=True)
    threading.Event().wait()
