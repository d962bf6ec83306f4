"""`async` handlers share a loop, and leave nothing for the jobs that follow."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection

from django_proletarian import QueueWorker, enqueue, enqueue_many, job_handler
from tests.app.models import Entry
from tests.conftest import eventually
from tests.live.processes import archived, sql, url_of

RunWorker = Callable[..., QueueWorker]


def drained(run_worker: RunWorker, threads: int = 1) -> list[tuple[str, str, int]]:
    """The archive, when a worker has run all jobs."""
    assert run_worker(threads=threads, drain=True).join(20)
    return archived(url_of())


def pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_the_async_handlers_of_a_thread_share_a_loop_which_ends_with_it(run_worker: RunWorker) -> None:
    loops: set[asyncio.AbstractEventLoop] = set()

    @job_handler("tests/async")
    async def note(payload: object) -> None:
        loops.add(asyncio.get_running_loop())

    enqueue_many([("tests/async", None)] * 10)
    assert set(drained(run_worker)) == {(":tests/async", ":success", 1)}
    (loop,) = loops
    assert loop.is_closed()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("proletarian[")]


def test_an_async_handler_uses_its_worker_threads_connections(
    run_worker: RunWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    pids: dict[str, list[int]] = {"plain": [], "async": [], "task": [], "atomic": []}
    job_handler("tests/plain")(lambda payload: pids["plain"].append(pid()))

    @job_handler("tests/async")
    async def note(payload: object) -> None:
        pids["async"].append(await sync_to_async(pid)())
        pids["task"].append(await asyncio.create_task(sync_to_async(pid)()))

    @job_handler("tests/atomic", atomic=True)
    async def note_atomic(payload: object) -> None:
        pids["atomic"].append(await sync_to_async(pid)())

    enqueue_many([(f"tests/{kind}", None) for kind in ("plain", "async", "atomic")] * 3)
    assert len(drained(run_worker)) == 9
    assert [len(of_kind) for of_kind in pids.values()] == [3, 3, 3, 3]
    assert len({*pids["plain"], *pids["async"], *pids["task"]}) == 1
    assert len(set(pids["atomic"])) == 1
    assert set(pids["atomic"]) != set(pids["plain"])


def test_no_connection_of_an_async_handler_is_left(run_worker: RunWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    pids: set[int] = set()

    @job_handler("tests/async")
    async def writes(payload: object) -> None:
        await Entry.objects.acreate(text="one")
        pids.add(await sync_to_async(pid)())
        # On threads beside, where connections are opened that nobody else would close.
        pids.update(await asyncio.gather(*[asyncio.to_thread(pid) for _ in range(3)]))
        pids.add(await sync_to_async(pid, thread_sensitive=False)())

    enqueue_many([("tests/async", None)] * 6)
    worker = run_worker(threads=2)
    eventually(lambda: len(archived(url_of())) == 6)
    # Those of the two worker threads stay, as the settings say.
    eventually(lambda: len(still_open(pids)) <= 2)
    assert worker.stop() is True
    eventually(lambda: not still_open(pids))
    assert set(archived(url_of())) == {(":tests/async", ":success", 1)}


def still_open(pids: set[int]) -> list[object]:
    return sql(url_of(), "SELECT pid FROM pg_stat_activity WHERE pid = ANY(%s)", [list(pids)])


def test_what_an_async_handler_leaves_ends_before_its_job(run_worker: RunWorker) -> None:
    told: list[str] = []

    async def sleeper() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await Entry.objects.acreate(text="a task that was left")
            told.append("task")

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            await Entry.objects.acreate(text="a generator that was left")
            told.append("generator")

    kept: list[AsyncIterator[int]] = []
    tasks: list[asyncio.Task[None]] = []

    @job_handler("tests/leave")
    async def leave(payload: object) -> None:
        tasks.append(asyncio.create_task(sleeper()))
        async for _ in numbers():
            break
        kept.append(numbers())
        await anext(kept[0])
        asyncio.get_running_loop().run_in_executor(None, lambda: told.append("thread"))
        await asyncio.sleep(0)

    @job_handler("tests/look")
    async def look(payload: object) -> None:
        told.append(f"{len(asyncio.all_tasks()) > 3}")

    enqueue("tests/leave")
    enqueue("tests/look")
    assert {status for _, status, _ in drained(run_worker)} == {":success"}
    assert sorted(told[:-1]) == ["generator", "generator", "task", "thread"]
    assert told[-1] == "False"
    assert Entry.objects.count() == 3


def test_an_error_in_what_a_handler_left_is_logged_and_changes_nothing(
    run_worker: RunWorker, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(error: BaseException) -> None:
        raise error

    loops: set[asyncio.AbstractEventLoop] = set()

    @job_handler("tests/leave")
    async def leave(payload: object) -> None:
        loops.add(asyncio.get_running_loop())
        asyncio.create_task(fails(ValueError("left behind")))  # noqa: RUF006 # it does not wait for anything

    @job_handler("tests/exit")
    async def leave_exit(payload: object) -> None:
        loops.add(asyncio.get_running_loop())
        asyncio.create_task(fails(SystemExit(3)))  # noqa: RUF006 # it does not wait for anything
        await asyncio.sleep(0.01)

    for job_type in ("tests/leave", "tests/exit", "tests/leave"):
        enqueue(job_type)
    with caplog.at_level(logging.ERROR, "asyncio"):
        assert {status for _, status, _ in drained(run_worker)} == {":success"}
    assert len(loops) == 1
    # Of the exit asyncio tells when the task is collected.
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [str(error) for error in errors if isinstance(error, ValueError)] == ["left behind"] * 2


def test_what_an_async_handler_exits_with_is_its_own_failure(run_worker: RunWorker) -> None:
    @job_handler("tests/exit")
    async def exits(payload: object) -> None:
        raise SystemExit(3)

    job_handler("tests/pass")(lambda payload: None)
    enqueue("tests/exit")
    enqueue("tests/pass")
    assert drained(run_worker) == [(":tests/exit", ":failure", 1), (":tests/pass", ":success", 1)]


def test_context_variables_of_one_async_handler_are_not_the_nexts(run_worker: RunWorker) -> None:
    variable = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    @job_handler("tests/async")
    async def note(payload: object) -> None:
        seen.append(variable.get())
        variable.set(1)

    enqueue_many([("tests/async", None)] * 3)
    drained(run_worker)
    assert seen == [0, 0, 0]


def test_a_plain_handler_may_use_async_to_sync_beside_async_ones(run_worker: RunWorker) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def note(payload: object = None) -> None:
        await Entry.objects.acreate(text="written")
        loops.append(asyncio.get_running_loop())

    job_handler("tests/async")(note)
    job_handler("tests/plain")(lambda payload: async_to_sync(note)())
    enqueue_many([("tests/async", None), ("tests/plain", None)] * 2)
    assert set(drained(run_worker)) == {(":tests/async", ":success", 1), (":tests/plain", ":success", 1)}
    assert Entry.objects.count() == 4
    assert len(set(loops)) == 3
