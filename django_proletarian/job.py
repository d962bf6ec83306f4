"""A job as a handler sees it: a frozen value, made by the store from one row."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic
from uuid import UUID

from django_proletarian.interrupts import current_stop
from django_proletarian.typing_variables import Payload_co


class _Stoppable:
    """What a job has beside its value: the stop of the worker that runs it. Copies, pickled ones too, have none."""

    __slots__ = ("_stop",)

    _stop: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(_Stoppable, Generic[Payload_co]):
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

    @property
    def _stop_or_nobodys(self) -> threading.Event:
        return getattr(self, "_stop", None) or current_stop.get() or threading.Event()


def told_of(stop: threading.Event, job: Job[Payload_co]) -> Job[Payload_co]:
    """The job, which knows of `stop` from now on."""
    object.__setattr__(job, "_stop", stop)  # the rest of it is frozen
    return job
