"""A supervisor and its worker processes: started, signalled, replaced, orphaned, stopped together."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from django_proletarian import enqueue, enqueue_many
from django_proletarian.new_jobs import NewJob
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.live.processes import ROOT, WorkerProcess, archived, claims_of, is_alive, unlocked_jobs, url_of

Spawn = Callable[..., WorkerProcess]

each_start_method = pytest.mark.parametrize("start_method", ["spawn", "fork", "forkserver"])


class WaitingJobs:
    """Jobs that run, whatever stop is asked, until the test lets them go."""

    def __init__(self, directory: Path, jobs: int) -> None:
        self._directory = directory
        self.started = [directory / f"started-{number}" for number in range(jobs)]
        for path in self.started:
            enqueue("tests/wait-for-file", {"started": str(path), "go": str(directory / "go")})

    def have_started(self) -> set[int]:
        """Wait until all run; return the ids of their processes."""
        eventually(lambda: all(path.exists() for path in self.started))
        return {int(path.read_text()) for path in self.started}

    def let_go(self) -> None:
        (self._directory / "go").touch()


@each_start_method
def test_processes_work_show_what_they_run_and_end_with_a_supervisor_that_is_killed(
    committed: None, spawn: Spawn, tmp_path: Path, start_method: str
) -> None:
    jobs = WaitingJobs(tmp_path, 2)
    worker = spawn("--processes", "2", "--start-method", start_method, "--worker-id", "pair")
    pids = jobs.have_started()
    assert pids == set(worker.children)
    before = rows("proletarian.job")

    worker.send(signal.SIGUSR1)
    eventually(lambda: worker.log.count("running-job") == 2)
    assert worker.log.count("job_type=:tests/wait-for-file attempt=1 since=") == 2
    assert worker.log.count("in wait_for_file") >= 2  # in the stack traces

    worker.send(signal.SIGKILL)
    eventually(lambda: not any(is_alive(pid) for pid in pids), seconds=5)
    eventually(lambda: len(unlocked_jobs(url_of())) == 2)
    assert rows("proletarian.job") == before
    eventually(lambda: claims_of(url_of(), "pair") == [])


def test_a_process_whose_logging_is_just_being_set_up_ends_with_its_supervisor(spawn: Spawn, db: None) -> None:
    worker = spawn("--start-method", "spawn", settings="tests.live.stuck_logging")
    worker.says("stuck")
    [pid] = worker.children
    worker.send(signal.SIGKILL)
    eventually(lambda: not is_alive(pid))


def test_ctrl_c_in_a_terminal_reaches_all_processes_and_counts_as_one_signal(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    jobs = WaitingJobs(tmp_path, 2)
    worker = spawn("--processes", "2")
    jobs.have_started()

    os.killpg(worker.pid, signal.SIGINT)
    eventually(lambda: worker.log.count("shutting-down") == 2)
    jobs.let_go()

    assert worker.ends() == 0
    assert archived(url_of()) == [(":tests/wait-for-file", ":success", 1)] * 2
    assert worker.log.count("completed-shutdown") == 2
    assert "KeyboardInterrupt" not in worker.log


def test_drain_ends_when_all_processes_have_run_what_is_due(committed: None, spawn: Spawn) -> None:
    enqueue_many([NewJob("tests/append", number) for number in range(20)])
    worker = spawn("--drain", "--processes", "2")
    assert worker.ends() == 0
    assert len(archived(url_of())) == 20
    assert len(worker.children) == 2


def test_max_jobs_counts_the_jobs_of_all_processes_also_of_those_that_are_replaced(
    committed: None, spawn: Spawn
) -> None:
    enqueue_many([NewJob("tests/append", number) for number in range(20)])
    worker = spawn("--max-jobs", "7", "--processes", "2", "--max-jobs-per-process", "2")
    assert worker.ends() == 0
    assert len(archived(url_of())) == 7
    assert len(worker.children) == 4  # 2 and 2, 2 and 1


def test_a_process_that_has_grown_too_big_finishes_its_jobs_and_is_replaced(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    jobs = WaitingJobs(tmp_path, 1)
    worker = spawn("--threads", "2", "--max-memory-per-process", "1", "--worker-id", "fat")
    [fat] = jobs.have_started()
    enqueue("tests/append", "makes it look at its memory")
    # The thread that is free ends, and closes its connection.
    eventually(lambda: len(archived(url_of())) == 1 and len(claims_of(url_of(), "fat")) == 1)
    enqueue("tests/append", "is for the next")
    assert worker.children == [fat]

    jobs.let_go()

    eventually(lambda: len(archived(url_of())) == 3)
    assert {attempts for _, _, attempts in archived(url_of())} == {1}
    assert len(worker.children) >= 2
    assert "worker-process-died" not in worker.log
    assert worker.stop() == 0


def test_a_process_that_does_not_end_in_time_is_told_and_the_exit_code_is_1(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    jobs = WaitingJobs(tmp_path, 1)
    worker = spawn("--processes", "2", "--shutdown-timeout", "0.2")
    jobs.have_started()
    assert worker.stop() == 1
    assert [row["attempts"] for row in rows("proletarian.job")] == [0]
    assert "worker-process-died" not in worker.log


DEPLOYED_JOBS = """
from django_proletarian import job_handler
from tests.app.models import Entry

@job_handler("deployed/write", advanced=True)
def write(job):
    Entry.objects.create(text="%s", job_id=job.job_id)
"""


@pytest.mark.timeout(400)  # nine starts of a process, on a machine that may be busy
def test_a_deploy_replaces_processes_one_by_one_and_no_job_is_lost_or_run_twice(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    app = tmp_path / "deployed"
    app.mkdir()
    (app / "__init__.py").touch()
    code = app / "jobs.py"
    code.write_text(DEPLOYED_JOBS % "old")
    (tmp_path / "deployed_settings.py").write_text(
        'from tests.live.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, "deployed"]\n'
    )
    worker = spawn(
        *("--processes", "2", "--worker-id", "deploy"),
        settings="deployed_settings",
        PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}",
        PYTHONDONTWRITEBYTECODE="1",
    )
    enqueued: list[UUID] = []

    def load_until(condition: Callable[[], object]) -> None:
        def enqueue_some() -> object:
            enqueued.append(enqueue("deployed/write"))
            return condition()

        eventually(enqueue_some, seconds=100)

    # Both have loaded the old code.
    load_until(lambda: all(f"queue_worker_id=deploy-{number}\n" in worker.log for number in (1, 2)))
    load_until(lambda: Entry.objects.filter(text="old").count() > 20)

    # Code that can't be imported: those that run stay.
    code.write_text("syntax error")
    worker.send(signal.SIGHUP)
    load_until(lambda: "replacement-failed" in worker.log)
    first = worker.children[:2]
    assert all(is_alive(pid) for pid in first)

    code.write_text(DEPLOYED_JOBS % "new")
    worker.send(signal.SIGHUP)
    load_until(lambda: not any(is_alive(pid) for pid in first))
    last = enqueue("deployed/write")
    eventually(lambda: not rows("proletarian.job"))

    assert Entry.objects.get(job_id=last).text == "new"
    assert sorted(Entry.objects.values_list("job_id", flat=True)) == sorted([*enqueued, last])
    assert set(archived(url_of())) == {(":deployed/write", ":success", 1)}
    assert len(worker.children) == 5
    assert worker.log.count("how=ended") == 2
    assert worker.stop() == 0


def test_a_program_that_calls_the_command_runs_the_worker_in_its_own_process(committed: None) -> None:
    enqueue("tests/append", "here")
    call_command("proletarian_worker", drain=True)
    assert len(archived(url_of())) == 1
    with pytest.raises(CommandError, match="More than one process needs the supervisor"):
        call_command("proletarian_worker", drain=True, processes=2)


def test_without_a_supervisor_the_one_process_does_the_same(committed: None, spawn: Spawn, tmp_path: Path) -> None:
    jobs = WaitingJobs(tmp_path, 1)
    worker = spawn("--no-supervisor")
    assert jobs.have_started() == {worker.pid}
    worker.send(signal.SIGUSR1)
    worker.says("running-job")
    worker.says("in wait_for_file")
    eventually(worker.heartbeat.exists)
    worker.send(signal.SIGTERM)
    worker.says("shutting-down")
    jobs.let_go()
    assert worker.ends() == 0
    assert not worker.heartbeat.exists()
