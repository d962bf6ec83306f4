"""Tells systemd, if it is what started the worker, that it is ready, alive, or stopping: sd_notify's protocol.

One datagram a message, to the socket that NOTIFY_SOCKET names.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

READY = "READY=1"
WATCHDOG = "WATCHDOG=1"
STOPPING = "STOPPING=1"


def notify(message: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send a message, if somebody listens. Never raises, never waits: a worker works without systemd too."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    # A leading @ stands for the NUL of Linux's abstract addresses.
    address = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(message.encode(), address)


def watchdog_interval(environment: Mapping[str, str] = os.environ) -> float | None:
    """Seconds between signs of life, half of what systemd allows; None if it does not ask for any from this process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(environment["WATCHDOG_USEC"]) / 2_000_000
    except (KeyError, ValueError):
        return None
