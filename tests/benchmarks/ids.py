"""What the order of job ids costs the index: random UUIDs beside version 7.

    python -m tests.benchmarks.ids [ROUNDS]

Ids are copied, in the order of their making, into a table that holds a million of the same kind already; the two kinds
take turns. Prints medians: ids a second, bytes of write-ahead log for each, and the size of the index at the end.
"""

from __future__ import annotations

import statistics
import sys
import time
import uuid
from collections.abc import Callable
from uuid import UUID

import psycopg

from django_proletarian.ids import uuid7
from tests.postgres import Postgres

BEFORE, COPIED = 1_000_000, 100_000
KINDS: dict[str, Callable[[], UUID]] = {"uuid4": uuid.uuid4, "uuid7": uuid7}


def main(rounds: int) -> None:
    with Postgres(fsync="on") as server, psycopg.connect(server.url, autocommit=True) as connection:
        for kind, make in KINDS.items():
            connection.execute(f"CREATE TABLE {kind} (job_id UUID PRIMARY KEY)")
            copy(connection, kind, make, BEFORE)
        connection.execute("CHECKPOINT")
        measured: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind, make in KINDS.items():
                measured[kind].append(copy(connection, kind, make, COPIED))
        for kind, figures in measured.items():
            rate, log = (statistics.median(column) for column in zip(*figures, strict=True))
            [(size,)] = connection.execute("SELECT pg_relation_size(%s)", [f"{kind}_pkey"]).fetchall()
            print(f"{kind}: {rate:10,.0f} ids/s  {log:6.1f} bytes of log each  index {size / 2**20:6.1f} MiB")


def copy(connection: psycopg.Connection, kind: str, make: Callable[[], UUID], count: int) -> tuple[float, float]:
    """Copy new ids into the kind's table; ids a second, and bytes of write-ahead log for each."""
    text = "\n".join(str(make()) for _ in range(count)) + "\n"
    [(before,)] = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchall()
    started = time.perf_counter()
    with connection.cursor() as cursor, cursor.copy(f"COPY {kind} FROM STDIN") as copying:
        copying.write(text)
    seconds = time.perf_counter() - started
    [(log,)] = connection.execute("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", [before]).fetchall()
    return count / seconds, float(log) / count


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
