"""Handlers for tests that run workers in processes of their own."""

import asyncio
import contextlib
import ctypes
import os
import pathlib
import signal
import time
from collections.abc import Callable

from django.db import transaction

from django_proletarian import Job, JobInterrupted, LeaseLost, RetryStrategy, job_handler, wait_or_stop
from tests.app.models import Entry


@job_handler("tests/append", advanced=True)
def append(job: Job) -> None:
    Entry.objects.create(text=str(job.payload), job_id=job.job_id)


@job_handler("tests/append-atomic", advanced=True, atomic=True)
def append_atomic(job: Job) -> None:
    Entry.objects.create(text=str(job.payload), job_id=job.job_id)


@job_handler("tests/append-async", advanced=True)
async def append_async(job: Job) -> None:
    await Entry.objects.acreate(text=str(job.payload), job_id=job.job_id)
    await asyncio.to_thread(Entry.objects.filter(job_id=job.job_id).exists)


@job_handler("tests/wait-for-file", advanced=True)
def wait_for_file(job: Job) -> None:
    """Create payload["started"] with this process's id, then wait, whatever is asked, until payload["go"] exists."""
    wait_for_file_to_go(job)
    Entry.objects.create(text="waited", job_id=job.job_id)


def wait_for_file_to_go(job: Job, look_every: float = 0.02) -> None:
    """`wait_for_file`, which writes nothing at its end."""
    payload = job.payload
    assert isinstance(payload, dict)
    started = pathlib.Path(str(payload["started"]))
    started.with_suffix(".tmp").write_text(str(os.getpid()))
    started.with_suffix(".tmp").rename(started)
    while not pathlib.Path(str(payload["go"])).exists():
        wait_or_stop(look_every)


@job_handler("tests/wait-for-file-leased", advanced=True, lease=300)
def wait_for_file_leased(job: Job) -> None:
    """`wait_for_file` under a lease."""
    wait_for_file(job)


@job_handler("tests/wait-for-file-leased-shortly", advanced=True, lease=1.5)
def wait_for_file_leased_shortly(job: Job) -> None:
    """The same, and the lease is over soon after nobody extends it."""
    wait_for_file(job)


@job_handler("tests/notes-loss", advanced=True, lease=1.5)
def notes_loss(job: Job) -> None:
    """Says in the file payload["lost"] that the lease was lost, and writes behind a fence."""
    assert isinstance(job.payload, dict)
    try:
        wait_for_file_to_go(job)
    except LeaseLost:
        pathlib.Path(str(job.payload["lost"])).touch()
        raise
    with transaction.atomic():
        job.fence()
        if not Entry.objects.filter(job_id=job.job_id).exists():
            Entry.objects.create(text="fenced", job_id=job.job_id)


@job_handler("tests/long", advanced=True)
def long_locked(job: Job) -> None:
    wait_for_file_to_go(job, look_every=0.5)


@job_handler("tests/long-leased", advanced=True, lease=30)
def long_leased(job: Job) -> None:
    wait_for_file_to_go(job, look_every=0.5)


@job_handler("tests/at-once")
def at_once(payload: object) -> None:
    """Take no time."""


@job_handler("tests/append-with-retries", advanced=True, retry_strategy=RetryStrategy(retries=20, delays=[0.1]))
def append_with_retries(job: Job) -> None:
    Entry.objects.create(text=str(job.payload), job_id=job.job_id)


@job_handler("tests/wait-for-stop")
def wait_for_stop(started: str) -> None:
    """Create the file, then wait until the worker is asked to stop, and give the job up."""
    pathlib.Path(started).touch()
    while not wait_or_stop(60):
        pass
    raise JobInterrupted


@job_handler("tests/wait-for-file-atomic", advanced=True, atomic=True)
def wait_for_file_atomic(job: Job) -> None:
    """`wait_for_file` inside the claim's transaction, which is the only one it uses."""
    wait_for_file(job)


@job_handler("tests/fail-at-first-attempt", advanced=True, retry_strategy=RetryStrategy(retries=1, delays=[0]))
def fail_at_first_attempt(job: Job) -> None:
    if job.attempts == 1:
        raise ValueError("not at the first attempt")
    Entry.objects.create(text=str(job.payload), job_id=job.job_id)


def _poison(job_type: str) -> Callable[[Callable[[Job], object]], object]:
    """Declare a handler that takes its process down, after a line in Entry says that it was run."""

    def declare(body: Callable[[Job], object]) -> object:
        def run(job: Job) -> None:
            Entry.objects.create(text=f"{job_type} {job.attempts}", job_id=job.job_id)
            body(job)

        return job_handler(
            job_type, advanced=True, retry_strategy=RetryStrategy(retries=2, delays=[0.1]), failed_job=note_failure
        )(run)

    return declare


def note_failure(job: Job, error: BaseException) -> None:
    Entry.objects.create(text=f"failed: {type(error).__name__}: {error}", job_id=job.job_id)


@_poison("tests/kill")
def kill(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@_poison("tests/segfault")
def segfault(job: Job) -> None:
    ctypes.string_at(0)


@_poison("tests/eat-memory")
def eat_memory(job: Job) -> None:
    eaten: list[bytearray] = []
    while True:
        eaten.append(bytearray(64 * 1024 * 1024))


def exit_too(job: Job, error: BaseException) -> None:
    Entry.objects.create(text="the callback", job_id=job.job_id)
    os._exit(0)


@job_handler("tests/exit-in-callback", failed_job=exit_too)
def exit_in_callback(payload: object) -> None:
    os._exit(0)


@job_handler("tests/busy", interruptible=True)
def busy(started: str) -> None:
    """Write, create the file, and go on for ever, looking at nothing."""
    Entry.objects.create(text="busy")
    pathlib.Path(started).touch()
    for _ in range(10**12):
        pass


@job_handler("tests/busy-atomic", interruptible=True, atomic=True)
def busy_atomic(started: str) -> None:
    busy(started)


@job_handler("tests/busy-async")
async def busy_async(started: str) -> None:
    await Entry.objects.acreate(text="busy")
    pathlib.Path(started).touch()
    await asyncio.Event().wait()


@job_handler("tests/holds-the-gil")
def holds_the_gil(payload: object) -> None:
    ctypes.PyDLL(None).sleep(5)


@job_handler("tests/sleeps")
def sleeps(payload: object) -> None:
    time.sleep(60)


@job_handler("tests/sleeps-limited", time_limit=0.2)
def sleeps_limited(payload: object) -> None:
    time.sleep(600)


@job_handler("tests/swallows")
def swallows(payload: object) -> None:
    """Catch whatever comes, and go on."""
    for _ in range(6000):
        with contextlib.suppress(BaseException):
            time.sleep(0.01)
