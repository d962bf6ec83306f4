"""Who sleeps, and what is notified: the server's view of the workers' listeners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg

from tests.live.processes import sql


def asleep(url: str, worker_id: str, *, since: str = "-infinity") -> bool:
    """Whether a thread of the worker has looked for the next job after its listener had said that it will hear of new
    ones, and has sent nothing since: until the idle interval is over, only a wake-up can make it look again. `since`
    is the database's time that it must have looked after."""
    return bool(
        sql(
            url,
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' "
            "AND starts_with(application_name, %s) AND application_name NOT LIKE '%%-heartbeat' AND query_start > %s "
            # Prepared, it shows by its name; behind a pooler, by its text. What stands before it in the message, now
            # and then, may be so long that the server shows nothing else.
            "AND query ~ 'next_due| AS due |heartbeat_at'",
            [f"{worker_id}-", since],
        )
    )


def holders(url: str) -> set[str]:
    """Names of the listeners that hold a lock which makes `enqueue` notify."""
    found = sql(
        url,
        "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' "
        "AND mode = 'ExclusiveLock' AND granted AND datname = current_database()",
    )
    return {name for (name,) in found}


def listener_of(url: str, worker_id: str) -> int | None:
    """Process id of the server's end of a worker's listener."""
    found = sql(url, "SELECT pid FROM pg_stat_activity WHERE application_name = %s", [f"{worker_id}-listener"])
    return found[0][0] if found else None


class Ear:
    """Hears what the workers' listeners hear."""

    def __init__(self, url: str, connection: psycopg.Connection) -> None:
        self._url = url
        self._connection = connection

    def heard(self) -> list[str]:
        """The payloads notified since the last call, by transactions that have ended."""
        mark = f"mark {uuid4()}"
        # Notifications come in the order of the commits, so that all from before come before the mark.
        sql(self._url, "SELECT pg_notify('proletarian', %s)", [mark])
        payloads = []
        for notify in self._connection.notifies(timeout=20):
            if notify.payload == mark:
                return payloads
            payloads.append(notify.payload)
        raise AssertionError("the mark was not heard")


@contextmanager
def listening(url: str) -> Iterator[Ear]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("LISTEN proletarian")
        yield Ear(url, connection)
