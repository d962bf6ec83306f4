"""A queue worker: threads that process jobs, sleep while there are none, and stop together.

Made by `create_queue_worker`, for the proletarian_worker command and for programs that have no command.

Source: proletarian/worker.clj, create-queue-worker; proletarian/executor.clj.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from django.db import connections

from django_proletarian import log as events
from django_proletarian import names
from django_proletarian.connection import ClaimConnection
from django_proletarian.event_loop import close_event_loop
from django_proletarian.interrupting import Stop
from django_proletarian.levels import Levels
from django_proletarian.listener import Listener
from django_proletarian.log import EventLog
from django_proletarian.outage import Backoff, Outage, is_permanent, is_transient
from django_proletarian.polling import JobBudget, PollingTurn
from django_proletarian.presence import session_lock
from django_proletarian.retention import Pruner
from django_proletarian.slots import Slot, Slots
from django_proletarian.store import ClaimBounds, seconds_to_next_job
from django_proletarian.worker import process_jobs
from django_proletarian.worker_options import WorkerOptions
from django_proletarian.worker_row import Identity, WorkerRow


class QueueWorker:
    """Runs the jobs of its queues on threads until it is stopped, or has nothing more to do.

    `start` once, then `stop`. Not restartable, as the original.

    Source: proletarian/worker.clj, create-queue-worker; proletarian/executor.clj.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.error: BaseException | None = None  # what ended the worker, if an error did; written by its threads
        # What its threads do, and which process it is; both may be replaced before the start.
        self.slots = Slots.private(options.threads)
        self.identity = Identity()
        self._row: WorkerRow | None = None  # from the start on
        self._log = EventLog(queue_worker_id=options.worker_id)
        self._stop = Stop()
        self._turn = PollingTurn(self._stop, options.threads)
        self._budget = JobBudget(options.max_jobs)
        self._listener: Listener | None = None
        if options.listen_database is not None and not options.drain:
            stored = [names.to_stored(queue) for queue in options.queues]
            name = f"{options.worker_id}-listener"
            self._listener = Listener(options.listen_database, name, options.tables, stored, self._turn.hurry)
        self._levels = Levels(options.tables, options.queues, options.own_queues)
        self._session_lock = session_lock(options.tables)
        self._pruner: Pruner | None = None
        if options.retention and not options.drain:
            name = f"{options.worker_id}-retention"
            self._pruner = Pruner(
                options.database, name, options.tables, options.retention, now=options.now, log=self._log
            )
        self._outage = Outage()
        self._lock = threading.Lock()  # guards the four below
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._shutting_down = False
        self._given_up = False

    def start(self, on_end: Callable[[], object] | None = None) -> bool | None:
        """Start the threads; True the first time, None if they were started before.

        `on_end` is called by the last thread to end, whatever ended it.
        """
        with self._lock:
            if self._threads:
                return None
            self._running = self.options.threads
            for number in range(1, self.options.threads + 1):
                name = f"{self.options.worker_id}-{number}"
                # Daemons, so that a handler that ignores the stop can't keep the process from ending.
                thread = threading.Thread(target=self._work, args=(number, name, on_end), name=name, daemon=True)
                self._threads.append(thread)
        self._row = WorkerRow(
            self.identity,
            self.slots,
            worker_id=self.options.worker_id,
            database=self.options.database,
            tables=self.options.tables,
            queues=self.options.queues,
        )
        self._row.start()
        if self._listener is not None:
            self._listener.start()
        if self._pruner is not None:
            self._pruner.start()
        for thread in self._threads:
            thread.start()
        return True

    def stop(self, timeout: float | None = None) -> bool | None:
        """Take no more jobs and wait for the running ones, at most `timeout` seconds (None for the option).

        Returns True when all threads have ended, False if some still run when the time is up (their jobs stay queued if
        the process ends now), None if the worker was never started.
        """
        with self._lock:
            again, self._shutting_down = self._shutting_down, True
        if not self._threads:
            return None
        self._log(events.ALREADY_SHUT_DOWN if again else events.SHUTTING_DOWN)
        self._request_stop()
        try:
            finished = self.join(self.options.shutdown_timeout if timeout is None else timeout)
        except KeyboardInterrupt:
            self._log(events.INTERRUPTED_WHILE_SHUTTING_DOWN)
            raise
        if not finished:
            self._given_up = True
            running = ", ".join(thread.name for thread in self._threads if thread.is_alive())
            self._log(events.QUEUE_WORKER_SHUTDOWN_ERROR, still_running=running)
            if self._row is not None:
                self._row.stop()
        return finished

    def finish(self) -> None:
        """Take no more jobs, and end when the running ones have: nobody asks those to stop."""
        self._budget.close()
        self._turn.hurry()

    @property
    def has_spent_its_jobs(self) -> bool:
        """Whether it may take no more jobs, because it has taken `max_jobs` or was told to finish."""
        return self._budget.spent

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all threads have ended; False if `timeout` seconds (None for no limit) were not enough."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            if thread is threading.current_thread():
                continue  # a handler that stops its own worker does not wait for itself
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads if thread is not threading.current_thread())

    def _request_stop(self) -> None:
        self._stop.set()
        self._turn.hand_on()
        self._stop.interrupt_handlers()

    def _work(self, number: int, name: str, on_end: Callable[[], object] | None) -> None:
        slot = self.slots.slot(number)
        try:
            with ClaimConnection(self.options.database, name, on_open=[self._session_lock]) as claim:
                self._poll_until_stopped(claim, self._log.within(worker_thread_id=number), slot)
        finally:
            close_event_loop()
            slot.end()
            connections.close_all()
            self._turn.hand_on()
            with self._lock:
                self._running -= 1
                last = self._running == 0
            if last:
                if self._listener is not None:
                    self._listener.stop()
                if self._pruner is not None:
                    self._pruner.stop()
                if self._row is not None:
                    self._row.stop()
                self._complete()
                if on_end is not None:
                    on_end()

    def _poll_until_stopped(self, claim: ClaimConnection, log: EventLog, slot: Slot) -> None:
        backoff = Backoff()
        bounds = ClaimBounds(self.options.unbounded_claim_interval)
        while not self._stop.is_set():
            try:
                if not self.options.drain:
                    self._sleep_until_something_is_due(claim, log, backoff)
                    if self._stop.is_set():
                        break
                self._run_due_jobs(claim, log, bounds, backoff, slot)
            except BaseException as error:  # noqa: BLE001 # a thread that dies leaves a worker that only looks alive
                claim.close()
                self._after_error(error, log)
                self._turn.leave()
                self._stop.wait(backoff.pause())
            else:
                backoff.succeeded()
                if self.options.drain or self._budget.spent:
                    return
        log(events.WORKER_INTERRUPTED)

    def _sleep_until_something_is_due(self, claim: ClaimConnection, log: EventLog, backoff: Backoff) -> None:
        """Take the turn to poll, and sleep until there may be a job to claim, or a stop is asked."""
        options = self.options
        if not self._turn.take():
            return
        hurried = self._turn.sleep(0)
        while not hurried and not self._stop.is_set():
            if self._listener is None or not self._listener.doze():
                self._turn.sleep(options.polling_interval)
                break
            # From here on the listener hears of every new job. Look once more for those that came just before, and from
            # time to time for those that nobody announces.
            first = [] if self._row is None else self._row.if_due(claim)
            due_in = seconds_to_next_job(claim, options.tables, self._levels, options.now(), first=first)
            self._note_answer(log)
            if due_in is not None and due_in <= options.idle_polling_interval:
                self._turn.sleep(due_in)
                break
            # The database answers, and there is no job whose running could fail: the worker may do so for weeks.
            backoff.succeeded()
            hurried = self._turn.sleep(options.idle_polling_interval)
        self._turn.wake()

    def _run_due_jobs(
        self, claim: ClaimConnection, log: EventLog, bounds: ClaimBounds, backoff: Backoff, slot: Slot
    ) -> None:
        """Run jobs until none is due or a stop is asked."""
        settled = False

        def claimed() -> None:
            nonlocal settled
            self._note_answer(log)
            if settled:
                # A busy worker may go on for weeks. A claim alone is no success: recording the job may fail again.
                backoff.succeeded()
            settled = True  # when this is called again
            if not self._turn.hand_on() and self._listener is not None:
                self._listener.awake()

        log(events.POLLING_FOR_JOBS)
        ran = process_jobs(
            self.options,
            claim,
            self.options.queues,
            stop=self._stop,
            log=log,
            budget=self._budget,
            bounds=bounds,
            on_claimed=claimed,
            slot=slot,
            announce=None if self._row is None else self._row.at_once,
            levels=self._levels,
        )
        self._note_answer(log)
        if ran is False and not self._stop.is_set():
            # The job that was given up stands at the head still. As the original, let an interval pass.
            self._turn.leave()
            self._stop.wait(self.options.polling_interval)
        elif ran is not None:
            # The thread that sleeps in turn may sleep past a retry that was just set.
            self._turn.hurry()

    def _note_answer(self, log: EventLog) -> None:
        self.slots.note_poll(time.monotonic())
        if self._outage.ended():
            log(events.DATABASE_IS_BACK)

    def _after_error(self, error: BaseException, log: EventLog) -> None:
        """Log an error of the polling loop, and stop the worker if that is what is left, or what is asked for."""
        stop = is_permanent(error) or (self.options.drain and not is_transient(error))
        if not is_transient(error):
            log(events.JOB_WORKER_ERROR, error=error)
        elif self._outage.began():
            log(events.SQL_TRANSIENT_EXCEPTION, error=error)
        if not stop and self.options.on_polling_error is not None:
            try:
                stop = bool(self.options.on_polling_error(error))
            except Exception as broken:  # noqa: BLE001 # the user's code: the worker goes on
                log(events.JOB_WORKER_ERROR, error=broken)
        if stop:
            self.error = self.error or error
            self._request_stop()

    def _complete(self) -> None:
        """Tell that all threads have ended; runs in the last of them."""
        if self._given_up:
            return
        self._log(events.COMPLETED_SHUTDOWN)
        if self.options.on_shutdown is not None:
            try:
                self.options.on_shutdown()
            except Exception as error:  # noqa: BLE001 # the user's code: there is nothing left to stop
                self._log(events.QUEUE_WORKER_SHUTDOWN_ERROR, error=error)
