"""What the archive's index costs a drain, and what pruning a million rows does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import LiteralString

from django_proletarian import conf, schema
from django_proletarian.connection import PrivateConnection
from django_proletarian.log import EventLog
from django_proletarian.management.commands.proletarian_prune import REST, batches
from django_proletarian.retention import Old, Pruner
from tests.benchmarks.server import NOTHING, QUEUE, STATUS, STORED_PAYLOAD, Server
from tests.benchmarks.workers import drain

OLD = Old(older_than=24 * 60 * 60)
# Jobs that finished a month ago, in the order in which they did.
ARCHIVE: LiteralString = """
INSERT INTO proletarian.archived_job
SELECT gen_random_uuid(), %s, %s, %s, 1, finished.at, finished.at, %s, finished.at
  FROM generate_series(1, %s) AS number,
       LATERAL (SELECT now() - interval '30 days' + number * interval '1 millisecond' AS at) AS finished
"""
JOBS_A_SECOND_UNTIL: LiteralString = """
SELECT count(*) / extract(epoch FROM LEAST(to_timestamp(%s), max(finished_at)) - min(finished_at))
  FROM proletarian.archived_job
 WHERE finished_at > now() - interval '1 day' AND finished_at <= to_timestamp(%s)
"""


def drain_with_and_without_index(server: Server, jobs: int) -> dict[str, Callable[[], float]]:
    def measured(index: bool) -> float:
        server.fill(jobs)
        if not index:
            server.sql("DROP INDEX proletarian.archived_job_finished_at")
        try:
            return drain(server, jobs)
        finally:
            server.run(schema.create_finished_at_index_if_missing(conf.tables()))

    return {"with_index": partial(measured, True), "without_index": partial(measured, False)}


def drain_beside_pruning(server: Server, jobs: int, archived: int) -> dict[str, Callable[[], float]]:
    def measured(prune: Callable[[threading.Event], None] | None) -> float:
        server.fill(jobs)
        server.sql(ARCHIVE, QUEUE, NOTHING, STORED_PAYLOAD, STATUS, archived)
        server.sql("VACUUM ANALYZE proletarian.archived_job")
        server.sql("CHECKPOINT")
        if prune is None:
            return drain(server, jobs)
        ended: list[float] = []
        drain(server, jobs, beside=partial(running, prune, ended))
        # Only what ran while there was something to prune.
        [(rate,)] = server.sql(JOBS_A_SECOND_UNTIL, ended[0], ended[0])
        return float(rate)

    return {
        "beside_retention": partial(measured, beside_retention),
        "beside_prune_command": partial(measured, beside_command),
        "alone": partial(measured, None),
    }


def beside_command(stop: threading.Event) -> None:
    """Prune as fast as proletarian_prune does."""
    with PrivateConnection("default", "bench-prune") as connection:
        for _ in batches(connection, OLD, 5000, REST):
            if stop.is_set():
                return


def beside_retention(stop: threading.Event) -> None:
    """Prune as fast as a worker's own thread does."""
    pruner = Pruner("default", "bench-retention", conf.tables(), {}, now=lambda: None, log=EventLog())
    pruner._stop = stop
    with pruner._connection:
        pruner._prune(OLD)


@contextmanager
def running(prune: Callable[[threading.Event], None], ended: list[float]) -> Iterator[None]:
    """Prune on a thread until the block ends; tell when it ended, and raise what the thread raised."""
    stop, errors = threading.Event(), []

    def run() -> None:
        try:
            prune(stop)
        except BaseException as error:
            errors.append(error)
        ended.append(time.time())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]
