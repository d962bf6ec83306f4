"""Jobs that take their worker process down, and their neighbours."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from django_proletarian import enqueue, enqueue_many
from django_proletarian.new_jobs import NewJob
from tests.app.models import Entry
from tests.conftest import eventually, rows
from tests.live.listening import asleep
from tests.live.processes import WorkerProcess, archived, sql, url_of

Spawn = Callable[..., WorkerProcess]

POISON = ("tests/kill", "tests/segfault", "tests/eat-memory")  # the last one under a limit, with a MemoryError


@pytest.mark.timeout(400)  # seven processes, one after the other, on a machine that may be busy
def test_poison_jobs_end_as_failures_after_their_attempts_and_200_innocent_ones_succeed(
    committed: None, spawn: Spawn
) -> None:
    poison = {job_type: enqueue(job_type) for job_type in POISON}
    innocent = enqueue_many([NewJob("tests/append", number) for number in range(200)])
    worker = spawn("--threads", "4", settings="tests.live.settings", memory=1024**3)

    eventually(lambda: len(archived(url_of())) == 203, seconds=240)

    ended = Counter((job_type, status) for job_type, status, _ in archived(url_of()))
    assert ended == {(":tests/append", ":success"): 200, **{(f":{job_type}", ":failure"): 1 for job_type in POISON}}
    assert rows("proletarian.job") == []
    # A neighbour's crash may have cut one off between its line and the commit, and then it was run again.
    assert set(innocent) <= set(Entry.objects.values_list("job_id", flat=True))
    for job_type, job_id in poison.items():
        # Guilty or not: in a crash of two that ran at once, the attempt of each counts.
        assert sql(url_of(), "SELECT attempts FROM proletarian.archived_job WHERE job_id = %s", [job_id]) == [(3,)]
        lines = list(Entry.objects.filter(job_id=job_id).order_by("pk").values_list("text", flat=True))
        attempts = [line for line in lines if not line.startswith("failed: ")]
        # A neighbour may have cut off an attempt before its line, or before its commit, and then it was run again.
        assert attempts == sorted(attempts)
        assert set(attempts) <= {f"{job_type} {attempt}" for attempt in (1, 2, 3)}
        assert lines[-1].startswith("failed: ")
    assert "was killed by SIGKILL" in worker.log
    assert "was killed by SIGSEGV" in worker.log
    assert worker.stop() == 0


@pytest.mark.parametrize("start_method", ["spawn", "fork", "forkserver"])
def test_an_unlucky_job_that_may_not_be_retried_is_run_again_after_a_neighbours_crash(
    committed: None, spawn: Spawn, tmp_path: Path, start_method: str
) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    enqueue("tests/wait-for-file", {"started": str(started), "go": str(go)})
    worker = spawn("--start-method", start_method)
    eventually(started.exists)
    enqueue("tests/append", "waits")

    started.unlink()
    os.kill(worker.children[0], signal.SIGKILL)

    # The one that only waited is run by the next process, and its attempts have not changed.
    eventually(lambda: archived(url_of()) == [(":tests/append", ":success", 1)])
    worker.says("how=was killed by SIGKILL")
    worker.says("The worker process that ran this job was killed by SIGKILL.")
    eventually(started.exists)
    assert [row["attempts"] for row in rows("proletarian.job")] == [1]
    go.touch()
    eventually(lambda: len(archived(url_of())) == 2)
    assert archived(url_of())[1] == (":tests/wait-for-file", ":success", 2)
    assert worker.stop() == 0


def test_a_callback_that_crashes_twice_is_not_called_again(committed: None, spawn: Spawn) -> None:
    job_id = enqueue("tests/exit-in-callback")
    worker = spawn(settings="tests.live.given_settings", PROLETARIAN=json.dumps({"MAX_CRASHES": 1}))

    eventually(lambda: archived(url_of()))

    assert archived(url_of()) == [(":tests/exit-in-callback", ":failure", 1)]
    assert list(Entry.objects.filter(job_id=job_id).values_list("text", flat=True)) == ["the callback"] * 2
    assert "exited with status 0" in worker.log
    assert "crashed-while-settling" in worker.log
    assert worker.stop() == 0


def test_a_crash_is_counted_by_a_process_that_lives_and_does_not_wait_for_the_next_one_to_start(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    # Nobody else looks for the job meanwhile.
    idle = json.dumps({"IDLE_POLLING_INTERVAL": 1000})
    worker = spawn("--processes", "2", "--worker-id", "w", settings="tests.live.given_settings", PROLETARIAN=idle)
    eventually(lambda: asleep(url_of(), "w-1") and asleep(url_of(), "w-2"))
    [[before]] = sql(url_of(), "SELECT clock_timestamp()::text")
    job_id = enqueue("tests/wait-for-file", {"started": str(started), "go": str(tmp_path / "go")})
    eventually(started.exists)

    victim = worker.children.index(int(started.read_text())) + 1
    # Both were woken.
    eventually(lambda: asleep(url_of(), f"w-{3 - victim}", since=before))
    os.kill(worker.children[victim - 1], signal.SIGKILL)

    worker.says("retrying")
    [line] = [line for line in worker.log.splitlines() if "/retrying" in line and str(job_id) in line]
    assert f"queue_worker_id=w-{3 - victim} " in f"{line} "
