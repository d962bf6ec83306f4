"""A job as a handler sees it: a frozen value, made by the store from one row."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol
from uuid import UUID

from asgiref.sync import sync_to_async

from django_proletarian.interrupts import current_stop
from django_proletarian.progress import Progress
from django_proletarian.typing_variables import Payload_co


class Running(Protocol):
    """The attempt that runs a job, as the worker makes it."""

    stop: threading.Event

    def progress(self, progress: Progress) -> None: ...
    def checkpoint(self, data: object) -> None: ...
    def last_checkpoint(self) -> Any: ...
    def fence(self) -> None: ...


class _Run:
    """What a job has beside its value: the attempt that runs it. Copies, pickled ones too, have none."""

    __slots__ = ("_running",)

    _running: Running


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(_Run, Generic[Payload_co]):
    """One job, as handed to `advanced` handlers, retry strategies and failed-job callbacks.

    For type checkers `Job[dict[str, int]]` tells what its payload is; a bare `Job` has an `object`.
    """

    job_id: UUID
    queue: str
    job_type: str
    # Decoded; None if it could not be. Not in the repr: it is other people's data.
    payload: Payload_co = field(repr=False)
    attempts: int  # counts this attempt too, so 1 on the first run
    enqueued_at: datetime  # aware, UTC, as are all dates here; never changes
    process_at: datetime  # when this attempt was due

    @property
    def stop_requested(self) -> bool:
        """Whether the worker that runs this job was asked to stop. Any thread may ask."""
        return self._stop_or_nobodys.is_set()

    def wait_or_stop(self, seconds: float) -> bool:
        """Wait for `seconds` or until the worker is asked to stop; return whether it was. Any thread may."""
        return self._stop_or_nobodys.wait(seconds)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Show how far the job has come: in the admin, in `proletarian_status`, in its result.

        Cheap: it is written once a second at the most, and not for every call. `total` None means that nobody knows.
        Nothing happens outside a worker. Raises ValueError for what is no number.
        """
        told = Progress.of(done, total, message)
        if (running := self._running_or_none) is not None:
            running.progress(told)

    def checkpoint(self, data: object) -> None:
        """Save `data`, small and of the kinds that a payload may have, for the job's next attempt to go on from.

        Within `transaction.atomic()` it is saved with what is written there, or not at all; outside it is durable at
        once. Raises LeaseLost, and saves nothing, if the job's lease is another worker's, PayloadEncodeError for what
        can't be encoded, RuntimeError in an atomic handler or outside a worker.
        """
        self._in_worker("checkpoint").checkpoint(data)

    async def acheckpoint(self, data: object) -> None:
        """`checkpoint` for coroutines."""
        await sync_to_async(self.checkpoint)(data)

    @property
    def last_checkpoint(self) -> Any:
        """What `checkpoint` saved last, in this attempt or one before it; None if nothing. Asks the database once."""
        return self._in_worker("last_checkpoint").last_checkpoint()

    async def alast_checkpoint(self) -> Any:
        """`last_checkpoint` for coroutines."""
        return await sync_to_async(self._in_worker("last_checkpoint").last_checkpoint)()

    def fence(self) -> None:
        """Within `transaction.atomic()`: make sure that no other worker has the job before the transaction ends.

        Raises LeaseLost if another may have it. What the transaction writes is then written by one worker at a time.
        Needed for leased jobs only; elsewhere the job's row is locked as long as its handler runs.
        """
        self._in_worker("fence").fence()

    @property
    def _running_or_none(self) -> Running | None:
        return getattr(self, "_running", None)

    def _in_worker(self, asked: str) -> Running:
        if (running := self._running_or_none) is None:
            raise RuntimeError(
                f"job.{asked} works while a worker runs the job's handler, on the very job that it was given. In a "
                "test: perform_job, or run_jobs."
            )
        return running

    @property
    def _stop_or_nobodys(self) -> threading.Event:
        running = self._running_or_none
        return (running and running.stop) or current_stop.get() or threading.Event()


def told_of(running: Running, job: Job[Payload_co]) -> Job[Payload_co]:
    """The job, which knows of the attempt that runs it from now on."""
    object.__setattr__(job, "_running", running)  # the rest of it is frozen
    return job


class HasJob(Protocol):
    """What runs a job, and makes the `Job` when it is first asked for."""

    @property
    def job(self) -> Job[Any]: ...


# Written by the worker thread that runs the handler, read by the handler. None where no worker runs it.
current_attempt: ContextVar[HasJob | None] = ContextVar("proletarian_attempt", default=None)


def current_job() -> Job[Any]:
    """The job whose handler runs here, for handlers that get their payload only.

    Raises RuntimeError outside a worker.
    """
    attempt = current_attempt.get()
    if attempt is None:
        raise RuntimeError(
            "current_job() works in a handler that a worker runs, and in threads and coroutines of asyncio and asgiref "
            "below it. In a test: perform_job, or run_jobs."
        )
    return attempt.job
