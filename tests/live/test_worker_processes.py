"""Several worker processes on one queue, and one that is killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from django_proletarian import enqueue, enqueue_many
from django_proletarian.new_jobs import NewJob
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.live.processes import WorkerProcess, archived, claims_of, unlocked_jobs, url_of


def test_two_processes_with_four_threads_run_each_of_2000_jobs_once(
    committed: None, spawn: Callable[..., WorkerProcess]
) -> None:
    # Opening a connection for each job would take far longer than the job.
    workers = [
        spawn("--threads", "4", "--worker-id", name, settings="tests.live.settings") for name in ("left", "right")
    ]
    eventually(lambda: claims_of(url_of(), "left") and claims_of(url_of(), "right"))

    ids = enqueue_many([NewJob("tests/append", number) for number in range(2000)])

    eventually(lambda: len(archived(url_of())) == 2000, seconds=60)
    assert [worker.stop() for worker in workers] == [0, 0]
    assert all("job-finished" in worker.log for worker in workers)
    assert sorted(Entry.objects.values_list("job_id", flat=True)) == sorted(ids)
    assert set(archived(url_of())) == {(":tests/append", ":success", 1)}
    assert rows("proletarian.job") == []


def test_a_job_whose_worker_is_killed_is_run_at_once_by_another(
    committed: None, spawn: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    enqueue("tests/wait-for-file", {"started": str(started), "go": str(go)})
    before = rows("proletarian.job")
    victim = spawn("--worker-id", "victim")
    eventually(started.exists)
    heir = spawn("--worker-id", "heir")
    eventually(lambda: claims_of(url_of(), "heir"))
    assert unlocked_jobs(url_of()) == []

    started.unlink()
    victim.send(signal.SIGKILL)

    eventually(started.exists)
    assert rows("proletarian.job") == before
    go.touch()
    eventually(lambda: archived(url_of()))
    assert archived(url_of()) == [(":tests/wait-for-file", ":success", 1)]
    assert Entry.objects.count() == 1
    assert heir.stop() == 0


def test_a_job_whose_worker_is_killed_waits_unlocked_with_attempts_unchanged(
    committed: None, spawn: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    started = tmp_path / "started"
    enqueue("tests/wait-for-file", {"started": str(started), "go": str(tmp_path / "go")})
    before = rows("proletarian.job")
    victim = spawn()
    eventually(started.exists)
    assert unlocked_jobs(url_of()) == []

    victim.send(signal.SIGKILL)

    assert victim.ends() == -signal.SIGKILL
    eventually(lambda: unlocked_jobs(url_of()))
    assert rows("proletarian.job") == before
    assert archived(url_of()) == []
