"""Django's tasks by real workers: a process that is killed, threads that run at once, and what others see meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django_proletarian import QueueWorker, current_job
from django_proletarian.tasks.framework import TaskResultStatus, task_backends
from tests.app import tasks
from tests.conftest import eventually, rows
from tests.live.processes import WorkerProcess, sql, url_of

RunWorker = Callable[..., QueueWorker]
Spawn = Callable[..., WorkerProcess]


def read(result: Any) -> Any:
    return task_backends["default"].get_result(result.id)


def test_a_task_whose_process_is_killed_is_ready_again_and_then_has_two_workers(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    result = tasks.kill_at_first.enqueue(str(tmp_path / "killed"))
    spawn("--worker-id", "victim")
    ready = eventually(lambda: (now := read(result)).attempts == 1 and now.status == "READY" and now)
    assert (ready.worker_ids, len(ready.errors)) == (["victim"], 1)
    assert ready.errors[0].exception_class.__name__ == "WorkerCrashed"
    sql(url_of(), "UPDATE proletarian.job SET process_at = now()")
    done = eventually(lambda: (now := read(result)).is_finished and now)
    assert done.return_value == "survived"
    assert done.worker_ids == ["victim", "victim"]


def test_a_running_task_is_running_to_others_and_looking_keeps_no_worker_from_it(run_worker: RunWorker) -> None:
    begun, go = threading.Event(), threading.Event()

    def waits() -> None:
        current_job().progress(1, 2, "half")
        current_job().checkpoint("half")
        begun.set()
        assert go.wait(30)

    tasks.HOOKS["wait"] = waits
    result = tasks.wait.enqueue()
    run_worker(worker_id="runner")
    try:
        assert begun.wait(30)
        assert read(result).status == TaskResultStatus.RUNNING
        assert not read(result).is_finished
        assert str(eventually(lambda: read(result).progress)) == "1 of 2 (50 %): half"
    finally:
        go.set()
    eventually(lambda: read(result).is_finished)
    assert read(result).progress is None
    assert read(result).worker_ids == ["runner"]  # a checkpoint is no attempt
    assert rows("proletarian.job") == []


def test_four_threads_run_tasks_each_with_its_own_result(run_worker: RunWorker) -> None:
    results = [tasks.add.enqueue(number, b=number) for number in range(100)]
    run_worker(threads=4, batch_size=5)
    eventually(lambda: len(rows("proletarian.archived_job")) == 100)
    assert [read(result).return_value for result in results] == [2 * number for number in range(100)]
