"""What happens in a worker, as events: a name of the original's and its data, told to `logging` and to signals.

The worker calls `EventLog`; a listener can fail without changing what becomes of a job.

Source: proletarian/log.clj, and the levels that the original's README suggests.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType

from django.dispatch import Signal

from django_proletarian import signals


@dataclass(frozen=True, slots=True)
class Event:
    """One kind of event: the original's namespace and name, its level, and the signal that goes with it."""

    namespace: str
    name: str
    level: int
    signal: Signal
    logger: logging.Logger = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "logger", logging.getLogger(f"django_{self.namespace}"))

    @property
    def is_heard(self) -> bool:
        """Whether anyone listens: no use in putting together what nobody will read."""
        return self.logger.isEnabledFor(self.level) or bool(self.signal.receivers)


POLLING_FOR_JOBS = Event("proletarian.worker", "polling-for-jobs", logging.DEBUG, signals.polling_for_jobs)
HANDLING_JOB = Event("proletarian.worker", "handling-job", logging.INFO, signals.handling_job)
JOB_FINISHED = Event("proletarian.worker", "job-finished", logging.INFO, signals.job_finished)
JOB_INTERRUPTED = Event("proletarian.worker", "job-interrupted", logging.INFO, signals.job_interrupted)
HANDLE_JOB_EXCEPTION = Event("proletarian.worker", "handle-job-exception", logging.ERROR, signals.handle_job_exception)
HANDLE_JOB_EXCEPTION_WITH_INTERRUPT = Event(
    "proletarian.worker",
    "handle-job-exception-with-interrupt",
    logging.ERROR,
    signals.handle_job_exception_with_interrupt,
)
TIME_LIMIT_IGNORED = Event("proletarian.worker", "time-limit-ignored", logging.ERROR, signals.time_limit_ignored)
LEASE_LOST = Event("proletarian.worker", "lease-lost", logging.ERROR, signals.lease_lost)
RETRYING = Event("proletarian.retry", "retrying", logging.INFO, signals.retrying)
NOT_RETRYING = Event("proletarian.retry", "not-retrying", logging.ERROR, signals.not_retrying)
ON_COMMIT_EXCEPTION = Event("proletarian.worker", "on-commit-exception", logging.ERROR, signals.on_commit_exception)
RETRY_STRATEGY_ERROR = Event(
    "proletarian.retry", "retry-strategy-fn-error", logging.ERROR, signals.retry_strategy_error
)
FAILED_JOB_CALLBACK_ERROR = Event(
    "proletarian.retry", "failed-job-fn-error", logging.ERROR, signals.failed_job_callback_error
)
ARCHIVED_JOB_REPLACED = Event(
    "proletarian.worker", "archived-job-replaced", logging.WARNING, signals.archived_job_replaced
)
ARCHIVED_JOB_NOT_REPLACED = Event(
    "proletarian.worker", "archived-job-not-replaced", logging.ERROR, signals.archived_job_not_replaced
)
SQL_TRANSIENT_EXCEPTION = Event(
    "proletarian.worker", "sql-transient-exception", logging.WARNING, signals.sql_transient_exception
)
DATABASE_IS_BACK = Event("proletarian.worker", "database-is-back", logging.INFO, signals.database_is_back)
JOB_WORKER_ERROR = Event("proletarian.worker", "job-worker-error", logging.ERROR, signals.job_worker_error)
WORKER_INTERRUPTED = Event("proletarian.worker", "worker-interrupted", logging.INFO, signals.worker_interrupted)
QUEUE_WORKER_SHUTDOWN_ERROR = Event(
    "proletarian.worker", "queue-worker-shutdown-error", logging.ERROR, signals.queue_worker_shutdown_error
)
SHUTTING_DOWN = Event("proletarian.executor", "shutting-down", logging.INFO, signals.shutting_down)
COMPLETED_SHUTDOWN = Event("proletarian.executor", "completed-shutdown", logging.INFO, signals.completed_shutdown)
ALREADY_SHUT_DOWN = Event("proletarian.executor", "already-shut-down", logging.INFO, signals.already_shut_down)
INTERRUPTED_WHILE_SHUTTING_DOWN = Event(
    "proletarian.executor",
    "interrupted-while-shutting-down",
    logging.INFO,
    signals.interrupted_while_shutting_down,
)
ARCHIVED_JOBS_PRUNED = Event(
    "proletarian.retention", "archived-jobs-pruned", logging.INFO, signals.archived_jobs_pruned
)
RETENTION_ERROR = Event("proletarian.retention", "retention-error", logging.ERROR, signals.retention_error)

WORKER_PROCESS_STARTED = Event(
    "proletarian.supervisor", "worker-process-started", logging.INFO, signals.worker_process_started
)
WORKER_PROCESS_ENDED = Event(
    "proletarian.supervisor", "worker-process-ended", logging.INFO, signals.worker_process_ended
)
WORKER_PROCESS_DIED = Event("proletarian.supervisor", "worker-process-died", logging.ERROR, signals.worker_process_died)
WORKER_PROCESS_NOT_STARTED = Event(
    "proletarian.supervisor", "worker-process-not-started", logging.ERROR, signals.worker_process_not_started
)
REPLACEMENT_FAILED = Event("proletarian.supervisor", "replacement-failed", logging.ERROR, signals.replacement_failed)
REPLACEMENT_REFUSED = Event(
    "proletarian.supervisor", "replacement-refused", logging.WARNING, signals.replacement_refused
)
WORKER_PROCESS_HANGS = Event(
    "proletarian.supervisor", "worker-process-hangs", logging.ERROR, signals.worker_process_hangs
)
CRASH_NOT_COUNTED = Event("proletarian.supervisor", "crash-not-counted", logging.WARNING, signals.crash_not_counted)
CRASHED_WHILE_SETTLING = Event(
    "proletarian.supervisor", "crashed-while-settling", logging.ERROR, signals.crashed_while_settling
)
HEARTBEAT_FILE_ERROR = Event(
    "proletarian.supervisor", "heartbeat-file-error", logging.ERROR, signals.heartbeat_file_error
)
HEARTBEAT_FILE_SHARED = Event(
    "proletarian.supervisor", "heartbeat-file-shared", logging.WARNING, signals.heartbeat_file_shared
)
RUNNING_JOB = Event("proletarian.supervisor", "running-job", logging.WARNING, signals.running_job)


class EventLog:
    """Tells events to their logger and their signal, each with the context it was made with.

    Context wins over an event's own data where both have a key, as in the original.
    """

    __slots__ = ("_context",)

    def __init__(self, **context: object) -> None:
        self._context = MappingProxyType(context)

    def within(self, **context: object) -> EventLog:
        """The same log with more context."""
        return EventLog(**{**context, **self._context})

    def __call__(self, event: Event, *, error: BaseException | None = None, **data: object) -> None:
        """Tell that `event` happened. Never raises, whatever a handler, filter or receiver does.

        `error` goes to `logging` as exc_info, traceback included, and to receivers as `exception`.
        """
        logged, signalled = event.logger.isEnabledFor(event.level), bool(event.signal.receivers)
        if not logged and not signalled:
            return
        # Context first for the reader's eye, and last for the clash.
        data = {**self._context, **data, **self._context}
        if logged:
            _guarded(_write, event, error, data)
        if signalled:
            _guarded(event.signal.send_robust, EventLog, event=event.name, exception=error, **data)


def _write(event: Event, error: BaseException | None, data: dict[str, object]) -> None:
    text = " ".join([f"{event.namespace}/{event.name}", *(f"{key}={value}" for key, value in data.items())])
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    event.logger.log(event.level, "%s", text, exc_info=exc_info, extra={"event": event.name, **data})


def _guarded(listener: Callable[..., object], *args: object, **data: object) -> None:
    try:
        listener(*args, **data)
    except (Exception, SystemExit):  # noqa: BLE001 # a listener that fails must not decide about a job
        traceback.print_exc(file=sys.stderr)


def log_to_stderr(verbosity: int) -> None:
    """Show the worker's log, if the project's LOGGING sends it nowhere: from INFO, or DEBUG with --verbosity 2."""
    logger = logging.getLogger("django_proletarian")
    if logger.hasHandlers() or verbosity == 0:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbosity == 1 else logging.DEBUG)
