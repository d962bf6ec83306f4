"""Starts the worker processes, replaces those that end, and stops them together: `proletarian_worker`'s first process.

It runs none of the project's jobs, strategies or callbacks, opens no connection to a database, and waits for nothing
that might not come. So nothing of theirs can take it down, and it has no connection that could cross into its children.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any

from django.db import connections

from django_proletarian import log as events
from django_proletarian.children import Child, Seat, how_it_ended, pause_after
from django_proletarian.crashes import Crash
from django_proletarian.log import EventLog
from django_proletarian.slots import Slots
from django_proletarian.vital_signs import VitalSigns
from django_proletarian.worker_options import WorkerOptions
from django_proletarian.worker_process import Assignment, ExitCode, main
from django_proletarian.worker_row import Identity

LOOK_AGAIN = 0.2  # seconds between looks at what sends no word, such as a process's first poll
REST = 1.0  # seconds between looks when nothing is under way: an idle worker is to cost next to nothing
STAGGER = 3.0  # seconds between the retries of jobs that crashed together
HEALTHY_LIFE = 60.0  # seconds; one that has lived so long is started at once
REPORTS_APART = 0.5  # seconds between the reports of two processes


class WorkerFailed(Exception):
    """A worker process ended by an error that only a person can mend; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the supervisor runs."""

    given: Mapping[str, Any]  # arguments of `worker_options`, plain values, for every process
    worker: WorkerOptions  # what they make
    verbosity: int
    processes: int
    start_method: str
    max_jobs_per_process: int | None = None  # None for any number
    max_memory_per_process: int | None = None  # MiB, resident; None for any
    heartbeat_file: Path | None = None  # None for none

    @property
    def ends_by_itself(self) -> bool:
        return self.worker.drain or self.worker.max_jobs is not None


class Supervisor:
    """Runs `plan` until it is told to stop, or until all is done. `run` once, in the main thread."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._context: Any = multiprocessing.get_context(plan.start_method)
        self._log = EventLog(queue_worker_id=plan.worker.worker_id)
        shares = _shares(plan.worker.max_jobs, plan.processes)
        self._seats = [Seat(number, share) for number, share in enumerate(shares, 1)]
        # Seats whose processes are to be replaced, one deque for each SIGHUP; the first of the first is under way.
        self._rounds: deque[deque[Seat]] = deque()
        self._crashes: list[Crash] = []  # handed to nobody
        self._signals: deque[int] = deque()  # appended to by the signal handler
        self._to_report: deque[Child] = deque()  # processes to be asked what they run
        self._report_at = 0.0  # time.monotonic() of the next question
        self._is_stopping = False
        self._stopped_at_once = False
        self._has_left_jobs = False
        self._failure: str | None = None
        self._vital_signs = VitalSigns(plan.heartbeat_file, self._log)

    def run(self) -> int:
        """Supervise to the end; return the exit code. Raises WorkerFailed."""
        for connection in connections.all(initialized_only=True):
            connection.close()
            if hasattr(connection, "close_pool"):
                connection.close_pool()
        if self._plan.start_method != "fork":
            # Not from within a start, which its own doing with the signal mask would disturb.
            resource_tracker.ensure_running()
        with self._listening_to_signals() as wakeup:
            try:
                while not self._has_ended():
                    self._wait(wakeup)
            finally:
                for child in self._children():
                    child.kill()
                    child.process.join()
                self._vital_signs.end()
        if self._failure is not None:
            raise WorkerFailed(self._failure)
        return 1 if self._has_left_jobs or self._stopped_at_once else 0

    def _has_ended(self) -> bool:
        """Do all that is to be done now; return whether that was the last."""
        while self._signals:
            self._react_to(self._signals.popleft())
        if self._stopped_at_once:
            return True
        self._ask_for_a_report()
        for seat in self._seats:
            for child in seat.children:
                child.receive()
                # Asked, and not only the sentinel: a program that a handler has started may hold that open.
                if child.process.exitcode is not None:
                    self._bury(child, seat)
        if not self._is_stopping:
            # First of all, for a process that starts takes with it what nobody has, and settles it some time later.
            self._hand_over_crashes()
            self._start_what_is_missing()
            self._replace_in_turn()
            self._stop_what_hangs()
        self._show_vital_signs()
        for child in self._children():
            if child.press():
                self._log(events.QUEUE_WORKER_SHUTDOWN_ERROR, pid=child.pid, still_running="the process")
                self._has_left_jobs = self._is_stopping
        return not self._children() and (self._is_stopping or all(seat.is_finished for seat in self._seats))

    def _show_vital_signs(self) -> None:
        for seat in self._seats:
            for child in seat.children:
                seat.last_poll.look(child.slots)
        now = time.monotonic()
        self._vital_signs.show(
            [
                # Nobody polls after a stop was asked, and that it ends is seen to.
                (seat.child.pid if seat.child else None, now if self._is_stopping else seat.last_poll.at)
                for seat in self._seats
                if not seat.is_finished
            ]
        )

    def _wait(self, wakeup: socket.socket) -> None:
        """Wait for a signal, for a process to end or to send word, or until it is time to look again."""
        children = self._children()
        ends = [end for child in children for end in (child.process.sentinel, child.connection)]
        ready = wait([wakeup, *ends], LOOK_AGAIN if self._is_something_under_way() else REST)
        with suppress(BlockingIOError):
            wakeup.recv(4096)
        if any(child.process.sentinel in ready for child in children):
            # A handler that has closed all files looks like an ended process, and would keep this one from resting.
            time.sleep(0.01)

    def _stop_what_hangs(self) -> None:
        """Stop processes whose jobs ignore their time limits: at once if nothing else runs there, else as any stop."""
        grace = self._plan.worker.time_limit_grace
        for child in self._children():
            if child.hangs(grace):
                for job in child.overdue:
                    self._log(
                        events.WORKER_PROCESS_HANGS,
                        pid=child.pid,
                        job_id=job.job_id,
                        job_type=job.job_type,
                        attempt=job.attempts + 1,
                        over_its_limit_for=f"{time.monotonic() - job.limit_at:.0f} s",
                    )
                child.stop(self._plan.worker.shutdown_timeout)
            if child.has_only_overdue_jobs and not child.is_killed:
                child.kill()

    def _is_something_under_way(self) -> bool:
        if self._is_stopping or self._crashes or self._rounds or self._to_report:
            return True
        steady = [seat.is_finished or (seat.child is not None and seat.child.is_steady) for seat in self._seats]
        return not all(steady)

    def _children(self) -> list[Child]:
        return [child for seat in self._seats for child in seat.children]

    # -- Signals -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _listening_to_signals(self) -> Iterator[socket.socket]:
        """Note signals, and wake the wait; the socket to wait on."""

        def note(signum: int, frame: FrameType | None) -> None:
            self._signals.append(signum)

        ears, bell = socket.socketpair()
        ears.setblocking(False)
        bell.setblocking(False)
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
        before = {number: signal.signal(number, note) for number in numbers}
        old_bell = signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
        try:
            yield ears
        finally:
            signal.set_wakeup_fd(old_bell)
            for number, handler in before.items():
                signal.signal(number, handler)
            ears.close()
            bell.close()

    def _react_to(self, signum: int) -> None:
        match signum:
            case signal.SIGTERM | signal.SIGINT:
                self._stopped_at_once = self._is_stopping
                self._stop()
            case signal.SIGUSR1:
                self._to_report = deque(self._children())
            case signal.SIGHUP if self._plan.ends_by_itself:
                self._log(events.REPLACEMENT_REFUSED, reason="the worker will end by itself")
            case signal.SIGHUP:
                # What is under way was perhaps started before the code changed.
                under_way = deque(seat for seat in self._seats if seat.successor is not None)
                self._rounds = deque([under_way, deque(self._seats)])

    def _ask_for_a_report(self) -> None:
        """Ask the next process what it runs. Not all at once: their stack traces would be mixed on the one stderr."""
        if not self._to_report or time.monotonic() < self._report_at:
            return
        child = self._to_report.popleft()
        self._report_at = time.monotonic() + REPORTS_APART
        if child in self._children():
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGUSR1)

    def _stop(self) -> None:
        self._is_stopping = True
        self._vital_signs.stopping()
        for child in self._children():
            child.stop(self._plan.worker.shutdown_timeout)

    # -- Starting ----------------------------------------------------------------------------------------------------

    def _start_what_is_missing(self) -> None:
        for seat in self._seats:
            if seat.child is None and not seat.is_finished and time.monotonic() >= seat.start_at:
                seat.child = self._start(seat)

    def _start(self, seat: Seat) -> Child | None:
        """Start a process for the seat; None, to be tried again later, if the system has no room for one."""
        try:
            child = self._start_process(seat)
        except OSError as error:
            pause = self._pause_of(seat, lived=0)
            self._log(
                events.WORKER_PROCESS_NOT_STARTED, error=error, worker_process=seat.number, tried_again_after=pause
            )
            return None
        self._log(events.WORKER_PROCESS_STARTED, worker_process=seat.number, pid=child.pid)
        return child

    def _pause_of(self, seat: Seat, lived: float) -> str:
        """Put off the seat's next start, after a process that lived for so many seconds; return by how much."""
        seat.deaths = 1 if lived > HEALTHY_LIFE else seat.deaths + 1
        pause = pause_after(seat.deaths)
        seat.start_at = time.monotonic() + pause
        return f"{pause:g} s"

    def _start_process(self, seat: Seat) -> Child:
        plan = self._plan
        limits = [limit for limit in (seat.jobs_left, plan.max_jobs_per_process) if limit is not None]
        max_jobs = min(limits) if limits else None
        worker_id = plan.worker.worker_id if plan.processes == 1 else f"{plan.worker.worker_id}-{seat.number}"
        assignment = Assignment(
            options={**plan.given, "worker_id": worker_id, "max_jobs": max_jobs},
            identity=Identity(processes=plan.processes, predecessors=tuple(seat.crashed)),
            threads=plan.worker.threads,
            verbosity=plan.verbosity,
            max_memory=plan.max_memory_per_process,
            crashes=tuple(self._crashes),
        )
        memory = self._context.RawArray("B", Slots.size(plan.worker.threads))
        ours, theirs = self._context.Pipe()
        inherited = [ours, *(child.connection for child in self._children())] if plan.start_method == "fork" else []
        process = self._context.Process(target=main, args=(assignment, memory, theirs, inherited), name=worker_id)
        # The process is not to die of them before it can listen. SIGTERM may kill it: nothing has begun.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP, signal.SIGUSR1})
        try:
            process.start()
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP, signal.SIGUSR1})
            theirs.close()
        child = Child(process, assignment.identity.process_id, Slots(memory, plan.worker.threads), ours, max_jobs)
        child.crashes = set(self._crashes)
        self._crashes.clear()
        return child

    # -- Replacing ---------------------------------------------------------------------------------------------------

    def _replace_in_turn(self) -> None:
        """Let the successor of the seat whose turn it is start, and poll; only then ask the old process to stop."""
        while self._rounds:
            if not self._rounds[0]:
                self._rounds.popleft()
                continue
            seat = self._rounds[0][0]
            if seat.child is None:
                self._rounds[0].popleft()  # what will be started here is new anyway
            elif seat.successor is None:
                if time.monotonic() >= seat.start_at:
                    seat.successor = self._start(seat)
                return
            else:
                if seat.successor.has_polled:
                    seat.child.stop(self._plan.worker.shutdown_timeout)
                return

    # -- Endings -----------------------------------------------------------------------------------------------------

    def _bury(self, child: Child, seat: Seat) -> None:
        """Draw the conclusions from a process's end."""
        code = child.process.exitcode
        child.receive()
        running = child.slots.running
        if child.has_crashed:
            self._log_death(child, seat, code)
            seat.crashed.append(child.process_id)
        else:
            running = child.still_overdue
            self._log(events.WORKER_PROCESS_ENDED, worker_process=seat.number, pid=child.pid, how=how_it_ended(code))
        self._take_back_crashes(child)
        how = how_it_ended(code) if child.has_crashed else "was ended, because the job ran on after its time limit"
        self._crashes += [
            Crash(
                job_id=job.job_id,
                attempts=job.attempts,
                since=job.since,
                worker_id=child.worker_id,
                how=how,
                stagger=number * STAGGER,
                leased_from=job.leased_from,
            )
            for number, job in enumerate(running)
        ]
        if self._is_stopping:
            for job in running:
                self._log(events.CRASH_NOT_COUNTED, job_id=job.job_id, reason="the worker stops")
        if code == ExitCode.LEFT_JOBS and self._is_stopping:
            self._has_left_jobs = True
        if code == ExitCode.FAILED and child is seat.child:
            self._failure = self._failure or child.failure or "A worker process ended without saying why."
            self._stop()
        if seat.jobs_left is not None:
            seat.jobs_left -= sum(child.slots.counts)
        child.connection.close()
        child.process.join()
        child.process.close()
        self._vacate(seat, child, code)

    def _vacate(self, seat: Seat, child: Child, code: int) -> None:
        if child is seat.successor:
            seat.successor = None
            if not self._is_stopping and not child.has_polled:
                # New code that does not start must not take the place of old code that runs.
                self._rounds.popleft()
                how = child.failure or how_it_ended(code)
                self._log(events.REPLACEMENT_FAILED, worker_process=seat.number, pid=child.pid, how=how)
            return
        seat.child, seat.successor = seat.successor, None
        if seat.child is not None:
            self._rounds[0].popleft()
        if self._plan.ends_by_itself and code == ExitCode.ENDED:
            seat.is_finished = True
        if seat.jobs_left is not None and seat.jobs_left <= 0:
            seat.is_finished = True

    def _log_death(self, child: Child, seat: Seat, code: int) -> None:
        pause = self._pause_of(seat, lived=time.monotonic() - child.started_at)
        self._log(
            events.WORKER_PROCESS_DIED,
            worker_process=seat.number,
            pid=child.pid,
            how=how_it_ended(code),
            jobs=", ".join(str(job.job_id) for job in child.slots.running) or "none",
            started_again_after=pause,
        )

    def _take_back_crashes(self, child: Child) -> None:
        settling = child.slots.settling if child.has_crashed else None
        for crash in child.crashes:
            died = crash.died_settling + (crash.job_id == settling)
            self._crashes.append(replace(crash, died_settling=died))

    def _hand_over_crashes(self) -> None:
        """Give crashes to the process that polled last, if any has: the one least likely to hang."""
        able = [child for child in self._children() if child.has_polled and child.stop_by is None]
        if self._crashes and able:
            max(able, key=lambda child: child.slots.polled_at).hand_over(self._crashes)
            self._crashes = []


def _shares(max_jobs: int | None, processes: int) -> list[int | None]:
    """How many jobs each process may run, so that they run `max_jobs` together; fewer processes if jobs are few."""
    if max_jobs is None:
        return [None] * processes
    each, rest = divmod(max_jobs, processes)
    return [share for number in range(processes) if (share := each + (number < rest))]
