"""One of the supervisor's worker processes: what runs in it from its first line to its exit code.

Started by `supervisor`, which shares the slots and holds the other end of a connection. Through it come the crashes to
settle, and through it goes what became of them; that it closes is how the process learns that the supervisor is gone.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, NoReturn

import django
from django.apps import apps

from django_proletarian import log as events
from django_proletarian.api import worker_options
from django_proletarian.crashes import Crash, CrashSettler
from django_proletarian.leases import give_back_leased_jobs
from django_proletarian.log import EventLog, log_to_stderr
from django_proletarian.outage import explained
from django_proletarian.queue_worker import QueueWorker
from django_proletarian.slots import Slots
from django_proletarian.worker_row import Identity

# Seconds that crashes may hold back the first poll, so that they are counted before their jobs run again.
CRASHES_FIRST = 3.0
# Seconds that threads of handlers may keep an ended process alive.
LINGERS_AT_MOST = 10.0
# Seconds that the last lines of a log may take when a process must end.
FLUSHES_WITHIN = 2.0

STDERR = 2


class ExitCode(IntEnum):
    """How a worker process ended; any other code is a crash. Not 0, which a handler's `os._exit` might give."""

    ENDED = 80  # it was stopped, or had nothing more to do
    LEFT_JOBS = 81  # it was stopped, and jobs still ran when the time was up
    REPLACE = 82  # it has run its number of jobs, or has grown too big
    FAILED = 83  # only a person can mend it; what to say was sent
    ORPHANED = 84  # the supervisor is gone, or out of reach because a handler closed what is not its own


class End(Enum):
    """Why a process ends."""

    BY_ITSELF = "by itself"
    STOP = "stop"
    TOO_BIG = "too big"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a worker process is to do. Pickled: plain values only."""

    options: Mapping[str, Any]  # arguments of `worker_options`
    identity: Identity
    threads: int
    verbosity: int
    max_memory: int | None  # MiB, resident
    crashes: tuple[Crash, ...]  # to be settled before anything else


def main(assignment: Assignment, memory: Any, supervisor: Connection, inherited: Sequence[Connection]) -> NoReturn:
    """Run a worker to its end, and exit.

    `memory` is what the slots are in. `inherited` are the supervisor's ends of connections, which a fork has copied:
    open here, they would hide its death from its children.
    """
    process = WorkerProcess(assignment, Slots(memory, assignment.threads), supervisor)
    process.listen_to_signals()
    for connection in inherited:
        connection.close()
    # Not for programs that handlers start.
    os.set_inheritable(supervisor.fileno(), False)
    code = process.run()
    # As Python shuts down it takes its signal handlers away, and what is left to the signals is to kill.
    faulthandler.unregister(signal.SIGUSR1)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    # sys.exit waits for threads that handlers have started, perhaps for ever.
    threading.Thread(target=_exit_late, args=(code,), daemon=True).start()
    sys.exit(code)


class WorkerProcess:
    """The threads beside the queue worker's own: the main one, one that hears the supervisor, one that keeps house."""

    def __init__(self, assignment: Assignment, slots: Slots, supervisor: Connection) -> None:
        self._assignment = assignment
        self._slots = slots
        self._supervisor = supervisor
        self._sending = threading.Lock()  # guards the supervisor's connection, for writing
        self._crashes: SimpleQueue[Crash | None] = SimpleQueue()
        self._ends: SimpleQueue[End] = SimpleQueue()  # put into from signal handlers too
        self._asked_to_report: SimpleQueue[None] = SimpleQueue()  # the same
        self._log = EventLog()

    def listen_to_signals(self) -> None:
        """First of all: SIGTERM stops, SIGUSR1 shows what runs."""
        signal.set_wakeup_fd(-1)  # a fork has copied the supervisor's
        # To the terminal's whole group go these two; what they mean is the supervisor's to say. Not SIG_IGN, which
        # programs that handlers start would inherit.
        signal.signal(signal.SIGINT, _do_nothing)
        signal.signal(signal.SIGHUP, _do_nothing)
        # However often it comes: a service manager may send it to all processes, and the supervisor does again.
        signal.signal(signal.SIGTERM, self._note_stop)
        report_on_signal(self._asked_to_report)
        faulthandler.enable(file=STDERR)
        # A process that a handler forks has no such queues to put anything into, and must be able to be terminated.
        os.register_at_fork(after_in_child=_default_signals)
        # The supervisor has blocked these until now, for by default they kill.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP, signal.SIGUSR1})

    def _note_stop(self, signum: int, frame: FrameType | None) -> None:
        self._ends.put(End.STOP)

    def run(self) -> ExitCode:
        """Run the worker until it has ended."""
        for crash in self._assignment.crashes:
            self._crashes.put(crash)
        threading.Thread(target=self._hear_supervisor, name="supervisor", daemon=True).start()
        if not apps.ready:
            django.setup()
        log_to_stderr(self._assignment.verbosity)
        options = worker_options(**self._assignment.options)
        self._log = EventLog(queue_worker_id=options.worker_id)
        threading.Thread(target=self._keep_house, name="housekeeping", daemon=True).start()
        worker = QueueWorker(options)
        worker.slots, worker.identity = self._slots, self._assignment.identity
        settler = CrashSettler(options, self._crashes, self._slots.settlers, self.tell_supervisor)
        settler.start(CRASHES_FIRST)
        worker.start(on_end=lambda: self._ends.put(End.BY_ITSELF))
        while (end := self._ends.get()) is End.TOO_BIG:
            worker.finish()
        if end is End.BY_ITSELF:
            worker.join()
        elif not worker.stop():
            exit_now(ExitCode.LEFT_JOBS)
        settler.stop(seconds=1)
        if worker.error is not None:
            self.tell_supervisor(explained(worker.error, options.database, options.tables))
            return ExitCode.FAILED
        return ExitCode.REPLACE if worker.has_spent_its_jobs else ExitCode.ENDED

    def tell_supervisor(self, message: Crash | str) -> None:
        """Tell it which crash has been settled, or what has ended the worker; any thread may."""
        # If it is gone, the thread that hears it is about to end the process.
        with self._sending, suppress(OSError):
            self._supervisor.send(message)

    def _hear_supervisor(self) -> None:
        try:
            while True:
                for crash in self._supervisor.recv():
                    self._crashes.put(crash)
        except (EOFError, OSError):
            # Nobody would replace this process or stop it. Its jobs' locks go with it.
            exit_now(ExitCode.ORPHANED)

    def _keep_house(self) -> None:
        limit = self._assignment.max_memory
        is_told = False

        def look_at_memory() -> None:
            nonlocal is_told
            # Not before it has run a job: with a limit that is too low the worker is to be slow, not idle.
            if limit is None or is_told or not any(self._slots.counts):
                return
            if resident_memory() > limit * 1024 * 1024:
                is_told = True
                self._ends.put(End.TOO_BIG)

        keep_house(self._asked_to_report, lambda: report(self._slots, self._log), look_at_memory)


def keep_house(asked: SimpleQueue[None], answer: Callable[[], object], each_second: Callable[[], object]) -> NoReturn:
    """Call `answer` whenever something is put into `asked`, and `each_second` about once a second. For a thread."""
    next_at = time.monotonic()
    while True:
        try:
            asked.get(timeout=max(0.0, next_at - time.monotonic()))
        except Empty:
            next_at = time.monotonic() + 1
            each_second()
        else:
            answer()


def report_on_signal(asked: SimpleQueue[None]) -> None:
    """At SIGUSR1 write the stack of every thread to stderr, and put something into `asked`."""

    def note(signum: int, frame: FrameType | None) -> None:
        asked.put(None)

    signal.signal(signal.SIGUSR1, note)
    # In C, and so also while a handler keeps Python from running.
    faulthandler.register(signal.SIGUSR1, file=STDERR, all_threads=True, chain=True)


def report(slots: Slots, log: EventLog) -> None:
    """Log what each worker thread runs. The stack traces, which name threads by number, are faulthandler's."""
    numbers = {thread.name: thread.ident for thread in threading.enumerate()}
    for job in slots.running:
        ident = next((ident for name, ident in numbers.items() if name.endswith(f"-{job.thread}")), None)
        log(
            events.RUNNING_JOB,
            worker_thread_id=job.thread,
            thread_ident=f"0x{ident or 0:016x}",
            job_id=job.job_id,
            job_type=job.job_type,
            attempt=job.attempts + 1,
            since=datetime.fromtimestamp(job.since, UTC).isoformat(timespec="seconds"),
            seconds=round(time.time() - job.since, 1),
        )
    if not slots.running:
        log(events.RUNNING_JOB, job_id=None)


def resident_memory() -> int:
    """Bytes of this process's memory that are in use now; at the most so far where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource  # noqa: PLC0415 # not on Windows, where nobody asks

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def exit_now(code: int) -> NoReturn:
    """End the process although handlers run: the server gives up their jobs' locks, and the jobs stay queued."""
    try:
        give_back_leased_jobs()
        # In a thread, for it may wait for ever: another may write to a pipe that nobody reads, or be setting logging up
        # and so take the same locks the other way round.
        flushing = threading.Thread(target=_flush, name="flushing", daemon=True)
        flushing.start()
        flushing.join(FLUSHES_WITHIN)
    finally:
        # sys.exit would wait for threads that a handler has started, perhaps for ever.
        os._exit(code)


def _flush() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()


def _do_nothing(signum: int, frame: FrameType | None) -> None:
    """What a signal does that is another's to act on."""


def _default_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)


def _exit_late(code: int) -> None:
    time.sleep(LINGERS_AT_MOST)
    exit_now(code)
