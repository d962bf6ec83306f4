"""A worker holds no more after many jobs than after some. (`python -m tests.benchmarks.leaks` asks after 100,000.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.benchmarks.leaks import holdings
from tests.live.processes import WorkerProcess, migrate
from tests.scratch import scratch_database

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a database that nobody else has a connection to."""
    with scratch_database() as url:
        migrate(url)
        yield url


def test_descriptors_and_connections_do_not_grow(database: str, spawn: Callable[..., WorkerProcess]) -> None:
    worker = spawn(
        "--threads", "2", "--no-supervisor", "--verbosity", "0", url=database, settings="tests.live.settings"
    )
    some, many = holdings(database, worker.pid, [300, 600])
    # Fewer are no leak: what the process opens for a moment may have been counted the first time.
    assert many.descriptors <= some.descriptors
    assert many.connections <= some.connections
    assert worker.stop() == 0
