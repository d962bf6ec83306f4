"""Fixtures of the live tests: worker processes and worker threads, always ended; servers of a test module's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_proletarian import QueueWorker, create_queue_worker
from tests.live.blocking import Blocking
from tests.live.events import Events, told
from tests.live.processes import WorkerProcess, url_of

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is `live`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Start a worker process, on the test database unless `url` says otherwise; killed at the end."""
    processes: list[WorkerProcess] = []

    def spawn(*arguments: str, url: str | None = None, **options: Any) -> WorkerProcess:
        output = tmp_path / f"worker-{len(processes) + 1}.log"
        process = WorkerProcess(output, url or url_of(), *arguments, **options)
        processes.append(process)
        return process

    yield spawn
    for process in processes:
        process.close()


@pytest.fixture
def run_worker(committed: None) -> Iterator[Callable[..., QueueWorker]]:
    """Start a worker in this process, polling fast; stopped at the end, when all its threads must have ended."""
    workers: list[QueueWorker] = []

    def run_worker(*queues: str, **options: Any) -> QueueWorker:
        worker = create_queue_worker(queues or None, **{"polling_interval": 0.02, **options})
        workers.append(worker)
        worker.start()
        return worker

    yield run_worker
    for worker in workers:
        assert worker.stop(), "a worker thread did not end"


@pytest.fixture
def blocking(run_worker: object) -> Iterator[Callable[[], Blocking]]:
    """Make a handler's body that runs until the test lets it end; let go at the end, before the workers are stopped."""
    made: list[Blocking] = []

    def blocking() -> Blocking:
        made.append(Blocking())
        return made[-1]

    yield blocking
    for block in made:
        block.go.set()


@pytest.fixture
def events() -> Iterator[Events]:
    """What workers of this process tell while the test runs."""
    with told() as events:
        yield events
