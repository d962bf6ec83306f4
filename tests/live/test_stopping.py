"""SIGTERM and SIGINT, at every moment of a worker process's life."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from django_proletarian import enqueue
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.live.processes import WorkerProcess, archived, claims_of, unlocked_jobs, url_of

Spawn = Callable[..., WorkerProcess]

both = pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])


class WaitingJob:
    """A job that runs, whatever stop is asked, until the test lets it go."""

    def __init__(self, directory: Path) -> None:
        self._started, self._go = directory / "started", directory / "go"
        self.job_id = enqueue("tests/wait-for-file", {"started": str(self._started), "go": str(self._go)})

    def has_started(self) -> None:
        eventually(self._started.exists)

    def let_go(self) -> None:
        self._go.touch()


@both
def test_after_a_first_signal_the_running_job_finishes_and_no_other_is_taken(
    committed: None, spawn: Spawn, tmp_path: Path, signum: signal.Signals
) -> None:
    job = WaitingJob(tmp_path)
    enqueue("tests/append", 1)
    worker = spawn()
    job.has_started()

    worker.send(signum)
    worker.says("shutting-down")
    job.let_go()

    assert worker.ends() == 0
    assert archived(url_of()) == [(":tests/wait-for-file", ":success", 1)]
    assert unlocked_jobs(url_of()) == [(":tests/append", 0)]
    assert Entry.objects.count() == 1
    assert "completed-shutdown" in worker.log


def test_a_job_that_ignores_the_stop_is_left_and_the_exit_code_tells(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    job = WaitingJob(tmp_path)
    before = rows("proletarian.job")
    worker = spawn("--shutdown-timeout", "0.2", "--worker-id", "stubborn")
    job.has_started()

    assert worker.stop() == 1

    eventually(lambda: unlocked_jobs(url_of()))
    assert rows("proletarian.job") == before
    assert archived(url_of()) == []
    assert "still_running=stubborn-1" in worker.log
    assert "completed-shutdown" not in worker.log


def test_an_interruptible_job_ends_with_the_first_signal_and_stays_queued(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    enqueue("tests/wait-for-stop", str(started))
    before = rows("proletarian.job")
    worker = spawn()
    eventually(started.exists)

    assert worker.stop() == 0

    assert rows("proletarian.job") == before
    assert unlocked_jobs(url_of()) == [(":tests/wait-for-stop", 0)]
    assert "job-interrupted" in worker.log


@both
def test_a_second_signal_ends_the_process_at_once(
    committed: None, spawn: Spawn, tmp_path: Path, signum: signal.Signals
) -> None:
    job = WaitingJob(tmp_path)
    before = rows("proletarian.job")
    worker = spawn("--shutdown-timeout", "1000")
    job.has_started()
    worker.send(signal.SIGTERM)
    worker.says("shutting-down")

    worker.send(signum)

    assert worker.ends() == 1
    eventually(lambda: unlocked_jobs(url_of()))
    assert rows("proletarian.job") == before


@both
def test_an_idle_worker_ends_with_the_first_signal_however_long_it_would_have_slept(
    committed: None, spawn: Spawn, signum: signal.Signals
) -> None:
    worker = spawn("--threads", "4", "--polling-interval", "1000", "--shutdown-timeout", "1000", "--worker-id", "idle")
    eventually(lambda: claims_of(url_of(), "idle"))

    worker.send(signum)

    assert worker.ends() == 0


def stopped_at_all_moments(spawn: Spawn, url: str | None = None) -> list[WorkerProcess]:
    """Workers that got a signal while they started, each when it, or its child, had imported so many modules."""
    moments = {
        spawn("--threads", "2", "--verbosity", "2", url=url, PYTHONPROFILEIMPORTTIME="1"): imports
        for imports in range(0, 1600, 200)
    }
    waiting = dict(moments)

    def all_have_it() -> bool:
        for worker, imports in list(waiting.items()):
            if worker.log.count("import time:") >= imports or "polling-for-jobs" in worker.log:
                worker.send(signal.SIGTERM)
                del waiting[worker]
        return not waiting

    eventually(all_have_it, seconds=60)
    return list(moments)


def test_a_signal_at_any_moment_of_the_start_ends_the_process(committed: None, spawn: Spawn) -> None:
    workers = stopped_at_all_moments(spawn)

    # The default action, before the command has a say, or an orderly end.
    assert {worker.ends() for worker in workers} <= {-signal.SIGTERM, 0}


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The URL of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"postgresql://postgres@127.0.0.1:{server.getsockname()[1]}/postgres"


def test_a_signal_ends_a_worker_that_waits_for_its_database(spawn: Spawn) -> None:
    worker = spawn(url="postgresql://postgres@127.0.0.1:1/postgres")
    worker.says("sql-transient-exception")

    assert worker.stop() == 0


def test_a_signal_at_any_moment_of_the_start_ends_a_worker_without_a_database(spawn: Spawn) -> None:
    workers = stopped_at_all_moments(spawn, "postgresql://postgres@127.0.0.1:1/postgres")

    assert {worker.ends() for worker in workers} <= {-signal.SIGTERM, 0}


def test_a_signal_ends_a_worker_whose_database_does_not_answer(spawn: Spawn, silent_server: str) -> None:
    worker = spawn("--shutdown-timeout", "0.2", "--verbosity", "2", url=silent_server)
    worker.says("polling-for-jobs")

    # A thread still waits for the connection, so the end is not an orderly one.
    assert worker.stop() == 1
