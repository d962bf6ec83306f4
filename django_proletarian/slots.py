"""What the threads of a worker process are doing, in memory that outlives the process: no database, no locks.

Each thread writes into a slot of its own which job it runs; the supervisor, who shares the memory, reads there what a
process that died was at. Written without a lock, since each field has one writer, and one who is killed must not leave
a lock behind. The header's time is `time.monotonic`'s, which on Linux and macOS all processes of a host share.
"""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django_proletarian import names
from django_proletarian.progress import Progress
from django_proletarian.retry import GaveUp, RetryAfter, Succeeded, Verdict

HEADER = struct.Struct("<d")  # when the queue was last looked into with success; 0 for never
STATE_SIZE = 1
IDLE, RUNNING, ENDED = 0, 1, 2  # in that byte; what follows counts while it is RUNNING
JOB = struct.Struct("<36sId64s128sd?d")  # id, attempts before this one, since, queue, job type, and the two below
LIMIT = struct.Struct("<d")  # time.monotonic() when the handler must have ended; 0 for never, or while none runs
LEASE = struct.Struct("<?d")  # whether it is leased, and the process_at, in seconds since 1970, that it had before
COUNTS = struct.Struct("<QQ")  # attempts of this thread that succeeded, that failed
LEASE_AT = STATE_SIZE + JOB.size - LEASE.size
LIMIT_AT = LEASE_AT - LIMIT.size
COUNTS_AT = STATE_SIZE + JOB.size
SLOT_SIZE = COUNTS_AT + COUNTS.size


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInSlot:
    """What a slot says."""

    thread: int  # from 1 up; one more than there are worker threads for the one that settles crashed jobs
    job_id: UUID
    attempts: int  # before this one
    since: float  # seconds since 1970
    queue: str  # as stored, cut to 64 bytes of UTF-8
    job_type: str  # as stored, cut to 128
    limit_at: float = 0.0  # time.monotonic() when its handler must have ended; 0 for never, or while none runs
    leased_from: float | None = None  # process_at that the row had before its lease; None if it has none


class Slot:
    """One thread's place in the memory; only that thread writes there."""

    __slots__ = ("_buffer", "_failed", "_slots", "_start", "_succeeded")

    def __init__(self, buffer: memoryview, start: int, slots: Slots) -> None:
        self._buffer = buffer
        self._start = start
        self._slots = slots
        self._succeeded = self._failed = 0

    def enter(self, job_id: str, attempts: int, queue: str, job_type: str, since: float) -> None:
        """Say that the thread runs this job from now on. `job_id` is a UUID's text, `since` seconds since 1970."""
        fields = (job_id.encode(), attempts, since, _field(queue, 64), _field(job_type, 128), 0.0, False, 0.0)
        JOB.pack_into(self._buffer, self._start + STATE_SIZE, *fields)
        # Last, so that a slot that is entered is whole.
        self._buffer[self._start] = RUNNING

    def limit(self, at: float) -> None:
        """Say that the handler must have ended `at`, by time.monotonic(); 0 for never, or when it has."""
        LIMIT.pack_into(self._buffer, self._start + LIMIT_AT, at)

    def lease(self, process_at: float) -> None:
        """Say that the job is leased from now on. Its row had `process_at`, in seconds since 1970, before."""
        LEASE.pack_into(self._buffer, self._start + LEASE_AT, True, process_at)

    def progress(self, job_id: str, progress: Progress) -> None:
        """Say how far the job has come; seen in this process only. Any thread of its handler's may."""
        self._slots.progress[job_id] = progress
        self._slots.on_progress()

    def leave(self, verdict: Verdict | None = None) -> None:
        """Say that the thread runs no job, and count what became of it; None for nothing."""
        self._buffer[self._start] = IDLE
        if self._slots.progress:
            self._slots.forget_progress()
        match verdict:
            case Succeeded():
                self._succeeded += 1
            case RetryAfter() | GaveUp():
                self._failed += 1
            case _:
                return
        COUNTS.pack_into(self._buffer, self._start + COUNTS_AT, self._succeeded, self._failed)

    def end(self) -> None:
        """Say that the thread has ended."""
        self._buffer[self._start] = ENDED


class Slots:
    """The memory of one process: a header, a slot for each worker thread, and one for settling crashed jobs.

    `buffer` is `size(threads)` bytes, zero at first: a bytearray, or memory that is shared.
    """

    def __init__(self, buffer: Any, threads: int) -> None:
        self._buffer = memoryview(buffer).cast("B")
        self.threads = threads
        # By job id, of this process only; written by handlers, read by who writes the worker's row.
        self.progress: dict[str, Progress] = {}
        self.on_progress: Callable[[], object] = _nobody_looks

    def forget_progress(self) -> None:
        """Forget the progress of jobs that do not run any more."""
        running = {str(job.job_id) for job in self.running}
        for job_id in set(self.progress) - running:
            self.progress.pop(job_id, None)

    @staticmethod
    def size(threads: int) -> int:
        return HEADER.size + (threads + 1) * SLOT_SIZE

    @classmethod
    def private(cls, threads: int) -> Slots:
        """Slots that no other process sees."""
        return cls(bytearray(cls.size(threads)), threads)

    def slot(self, thread: int) -> Slot:
        """The slot of a worker thread, from 1 up, to write to."""
        return Slot(self._buffer, self._start(thread), self)

    @property
    def settlers(self) -> Slot:
        """The slot of the thread that settles crashed jobs, to write to."""
        return self.slot(self.threads + 1)

    def note_poll(self, now: float) -> None:
        """Say that the database answered; `now` is time.monotonic's. Called by any thread."""
        HEADER.pack_into(self._buffer, 0, now)

    @property
    def polled_at(self) -> float:
        """When the database last answered, as time.monotonic counts; 0 if it never did."""
        [polled_at] = HEADER.unpack_from(self._buffer, 0)
        return float(polled_at)

    @property
    def running(self) -> list[JobInSlot]:
        """The jobs that the worker threads run."""
        return self._read(range(1, self.threads + 1))

    @property
    def settling(self) -> UUID | None:
        """Id of the crashed job that is being settled."""
        found = self._read([self.threads + 1])
        return found[0].job_id if found else None

    def overdue(self, grace: float) -> list[JobInSlot]:
        """The jobs whose handlers should have ended more than `grace` seconds ago."""
        now = time.monotonic()
        return [job for job in self.running if 0 < job.limit_at < now - grace]

    @property
    def is_busy(self) -> bool:
        """Whether no worker thread is left to poll: each runs a job, or has ended while another still does."""
        return all(self._buffer[self._start(thread)] != IDLE for thread in range(1, self.threads + 1))

    @property
    def threads_left(self) -> int:
        """How many worker threads have not ended."""
        return sum(self._buffer[self._start(thread)] != ENDED for thread in range(1, self.threads + 1))

    @property
    def counts(self) -> tuple[int, int]:
        """How many attempts of this process have succeeded, and how many have failed."""
        each = [
            COUNTS.unpack_from(self._buffer, self._start(thread) + COUNTS_AT) for thread in range(1, self.threads + 1)
        ]
        return sum(succeeded for succeeded, _ in each), sum(failed for _, failed in each)

    def _start(self, thread: int) -> int:
        return HEADER.size + (thread - 1) * SLOT_SIZE

    def _read(self, threads: Sequence[int]) -> list[JobInSlot]:
        found = []
        for thread in threads:
            if self._buffer[self._start(thread)] != RUNNING:
                continue
            fields = JOB.unpack_from(self._buffer, self._start(thread) + STATE_SIZE)
            job_id, attempts, since, queue, job_type, limit_at, is_leased, process_at = fields
            found.append(
                JobInSlot(
                    thread=thread,
                    job_id=UUID(job_id.decode()),
                    attempts=attempts,
                    since=since,
                    queue=_text(queue),
                    job_type=_text(job_type),
                    limit_at=limit_at,
                    leased_from=process_at if is_leased else None,
                )
            )
        return found


def _nobody_looks() -> None:
    """What is done about progress where there is no worker's row."""


@functools.lru_cache(maxsize=1000, typed=True)  # as names.to_stored, which it calls
def _field(name: str, size: int) -> bytes:
    return names.to_stored(name).encode()[:size]


def _text(field: bytes) -> str:
    # A cut may have gone through a character.
    return field.rstrip(b"\x00").decode(errors="ignore")
