"""What a worker in this process tells, as its signals' receivers see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_proletarian import signals

ALL = [value for value in vars(signals).values() if isinstance(value, signals.Signal)]


class Events:
    """Events in the order in which they came, each with its data; the frequent polling-for-jobs is left out."""

    def __init__(self) -> None:
        self._told: list[dict[str, Any]] = []  # written by worker threads, read by the test

    def receive(self, **data: Any) -> None:
        if data["event"] != "polling-for-jobs":
            self._told.append({key: value for key, value in data.items() if key not in ("signal", "sender")})

    def __getitem__(self, name: str) -> list[dict[str, Any]]:
        """The data of every event called `name`."""
        return [data for data in list(self._told) if data["event"] == name]

    @property
    def names(self) -> list[str]:
        return [data["event"] for data in list(self._told)]


@contextmanager
def told() -> Iterator[Events]:
    """Collect what is told inside the block."""
    events = Events()
    for one in ALL:
        one.connect(events.receive)
    try:
        yield events
    finally:
        for one in ALL:
            one.disconnect(events.receive)
