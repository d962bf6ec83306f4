"""Run a task's job: the handler that the worker finds for a payload that says how a task is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from traceback import format_exception
from typing import Any

from django_proletarian import conf, handlers
from django_proletarian.attempts import MOST_RESULT
from django_proletarian.errors import NoHandler
from django_proletarian.handlers import Around, Handler
from django_proletarian.interrupting import Stop
from django_proletarian.job import Job
from django_proletarian.retry import GaveUp, Succeeded, Verdict
from django_proletarian.tasks import envelope, results, signals
from django_proletarian.tasks.backend import ProletarianBackend
from django_proletarian.tasks.envelope import Envelope
from django_proletarian.tasks.framework import BaseTaskBackend, Task, TaskContext, TaskError, TaskResultStatus
from django_proletarian.tasks.lookup import as_enqueued, backend_for, find_task, lost_task
from django_proletarian.tasks.naming import queue_name_and_priority
from django_proletarian.tasks.results import ProletarianResult, change, in_projects_time
from django_proletarian.tasks.task import job_options
from django_proletarian.tasks.values import normalised, size

NO_ENVELOPE = Envelope(args=[], kwargs={}, backend="")


@dataclass(eq=False, kw_only=True)
class TaskAttempt:
    """One attempt at a task; used by the thread that runs it."""

    task: Task
    called: Envelope
    alias: str  # of its backend
    sender: type[BaseTaskBackend]  # the backend's class
    worker_id: str
    database: str  # alias of its jobs
    result: ProletarianResult | None = None  # from the start on

    def begin(self, job: Job) -> ProletarianResult:
        """Make the result, and say that the task has started."""
        result = self.result = self.result_of(job)
        signals.send(signals.task_started, self.sender, result)
        return result

    def result_of(self, job: Job) -> ProletarianResult:
        """The result while the task runs. An attempt that is not the first asks the database for those before."""
        queue_name, priority = queue_name_and_priority(job.queue)
        started_at = results.now()
        result = ProletarianResult(
            task=as_enqueued(
                self.task,
                queue_name=queue_name,
                priority=priority,
                backend=self.alias,
                run_after=self.called.run_after,
            ),
            id=str(job.job_id),
            status=TaskResultStatus.RUNNING,
            enqueued_at=in_projects_time(job.enqueued_at),
            started_at=started_at,
            last_attempted_at=started_at,
            finished_at=None,
            args=self.called.args,
            kwargs=self.called.kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        if job.attempts > 1:
            before = results.past_attempts(self.database, job.job_id)[: job.attempts - 1]
            if before:
                change(result, started_at=before[0].started_at)
            result.errors.extend(attempt.as_error() for attempt in before if attempt.exception_class is not None)
            result.worker_ids.extend(attempt.worker_id or results.UNKNOWN_WORKER for attempt in before)
            # So that context.attempt is right also where attempts were not recorded.
            missing = job.attempts - 1 - len(result.worker_ids)
            result.worker_ids.extend([results.UNKNOWN_WORKER] * missing)
        result.worker_ids.append(self.worker_id)
        return result


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskHandler(Handler):
    """Handles one job, which is a task: made anew for each attempt."""

    hears_of_ends = True
    attempt: TaskAttempt = field(repr=False)

    def run(self, payload: object, job: Callable[[], Job], stop: Stop, around: Around | None = None) -> object:
        """Call the task's function, and return what it returned as JSON has it; raises ValueError if it can't be."""
        result = self.attempt.begin(job())
        arguments = list(self.attempt.called.args)
        if self.attempt.task.takes_context:
            arguments.insert(0, TaskContext(task_result=result))
        value = normalised(self._call(stop, around, *arguments), "the return value")
        if self.keeps_attempts and value is not None and size(value) > MOST_RESULT // 4:
            _check_size(value)
        change(result, _return_value=value)
        return value

    def ended(self, job: Callable[[], Job], error: BaseException | None, verdict: Verdict) -> None:
        """Say that the task has finished, if it has."""
        if not isinstance(verdict, Succeeded | GaveUp):
            return
        result = self.attempt.result or self.attempt.result_of(job())
        change(result, finished_at=results.now())
        if error is None:
            change(result, status=TaskResultStatus.SUCCESSFUL)
            signals.send(signals.task_finished, self.attempt.sender, result)
            return
        kind, trace = type(error), error.__traceback__
        result.errors.append(
            TaskError(
                exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
                traceback="".join(format_exception(error)),
            )
        )
        change(result, status=TaskResultStatus.FAILED)
        try:
            # Receivers, Django's own log among them, ask sys.exc_info() what went wrong.
            raise error
        except BaseException:  # noqa: BLE001 # it is the one that was just raised
            error.__traceback__ = trace
            signals.send(signals.task_finished, self.attempt.sender, result)
        finally:
            error.__traceback__ = trace

    @property
    def path(self) -> str:
        return self.attempt.task.module_path


def _check_size(value: object) -> None:
    """Raise ValueError if the value is longer than what is kept of one."""
    length = len(conf.serializer().encode(value))
    if length > MOST_RESULT:
        raise ValueError(
            f"The return value takes {length:,} characters, and {MOST_RESULT:,} is the most that is stored. Store it "
            "elsewhere, such as in a model, and return its key."
        )


def handler_of_task(job_type: str, payload: object, worker_id: str, database: str) -> Handler | None:
    """The handler of a job whose payload says how a task is called; None for any other payload.

    A task that can't be found, or called, has a handler that raises why.
    """
    if not envelope.is_envelope(payload):
        return None
    called, task = NO_ENVELOPE, None
    try:
        called = envelope.read(payload)
        task = find_task(job_type)
    except (NoHandler, ValueError, TypeError) as error:
        function: Callable[..., Any] = partial(_raise, error)
    else:
        function = partial(task.func, **called.kwargs) if called.kwargs else task.func
    alias, backend = backend_for(called.backend, ProletarianBackend)
    attempt = TaskAttempt(
        task=lost_task(job_type) if task is None else task,
        called=called,
        alias=alias,
        sender=ProletarianBackend if backend is None else type(backend),
        worker_id=worker_id,
        database=database,
    )
    return TaskHandler(
        job_type=job_type,
        function=function,
        attempt=attempt,
        keeps_attempts=not isinstance(backend, ProletarianBackend) or backend.stores_results,
        **job_options(attempt.task),
    )


def _raise(error: BaseException, *args: Any) -> None:
    raise error


handlers.by_payload = handler_of_task
