"""Run a task's job: the handler that the worker finds for a payload that says how a task is called."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from traceback import format_exception
from uuid import UUID

from django.core.signals import setting_changed
from django.dispatch import receiver

from django_proletarian import conf, handlers
from django_proletarian.attempts import MOST_RESULT
from django_proletarian.errors import NoHandler
from django_proletarian.handlers import Around, ClaimedRow, Handler, HandlersAttempt
from django_proletarian.interrupting import Stop
from django_proletarian.retry import GaveUp, Succeeded, Verdict
from django_proletarian.tasks import envelope, results, signals
from django_proletarian.tasks.backend import ProletarianBackend
from django_proletarian.tasks.envelope import Envelope
from django_proletarian.tasks.framework import BaseTaskBackend, Task, TaskContext, TaskError, TaskResultStatus
from django_proletarian.tasks.lookup import as_enqueued, backend_for, find_task, lost_task
from django_proletarian.tasks.naming import queue_name_and_priority
from django_proletarian.tasks.results import ProletarianResult, change, made_when_asked
from django_proletarian.tasks.task import job_options
from django_proletarian.tasks.values import normalised, size

NO_ENVELOPE = Envelope(args=[], kwargs={}, backend="")


class TaskAttempt:
    """One attempt at a task, used by the thread that runs it: makes what its result says of it, when somebody asks."""

    status = TaskResultStatus.RUNNING
    finished_at = progress = _return_value = _why_missing = None

    def __init__(self, handler: TaskHandler, claimed: ClaimedRow, called: Envelope, worker_id: str) -> None:
        self.id = claimed.job_id
        self.backend = handler.alias
        self.args, self.kwargs = called.args, called.kwargs
        # Of this attempt alone; `tell_attempts_before` has the others.
        self.errors: list[TaskError] = []
        self.worker_ids = [worker_id]
        self._handler = handler
        self._claimed = claimed
        self._run_after = called.run_after
        # A number, of which most often nobody wants the date.
        self._began: datetime | float = conf.now() or time.time()

    @property
    def task(self) -> Task:
        queue_name, priority = queue_name_and_priority(self._claimed.queue)
        return as_enqueued(
            self._handler.task,
            queue_name=queue_name,
            priority=priority,
            backend=self.backend,
            run_after=self._run_after,
        )

    @property
    def enqueued_at(self) -> datetime:
        return results.as_projects_time(self._claimed.enqueued_at)

    @property
    def last_attempted_at(self) -> datetime:
        return results.as_projects_time(self._began)

    started_at = last_attempted_at  # where there is no attempt before


def tell_attempts_before(result: ProletarianResult, attempt: HandlersAttempt) -> None:
    """Ask the database for them, while they are there to be asked for, if this attempt is not the first."""
    number = attempt.claimed.attempts
    if number == 0:
        return
    before = results.past_attempts(attempt.database, UUID(attempt.claimed.job_id))[:number]
    if before:
        change(result, started_at=before[0].started_at)
    # So that context.attempt is right also where attempts were not recorded.
    workers = [each.worker_id or results.UNKNOWN_WORKER for each in before]
    workers += [results.UNKNOWN_WORKER] * (number - len(workers))
    change(
        result,
        errors=[each.as_error() for each in before if each.exception_class is not None],
        worker_ids=[*workers, *result.worker_ids],
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskHandler(Handler):
    """Handles the jobs of one task."""

    hears_of_ends = True
    task: Task = field(repr=False)
    alias: str  # of its backend
    sender: type[BaseTaskBackend]  # the backend's class
    problem: BaseException | None = None  # why the task can't be called

    def run(self, attempt: HandlersAttempt, stop: Stop, around: Around | None = None) -> object:
        """Call the task's function, and return what it returned as JSON has it; raises ValueError if it can't be."""
        called, problem = self._called(attempt)
        result = attempt.state = self._begin(attempt, called)
        signals.send(signals.task_started, self.sender, result)
        if problem is not None:
            raise problem
        arguments = called.args
        if self.task.takes_context:
            arguments = [TaskContext(task_result=result), *arguments]
        function = partial(self.function, **called.kwargs) if called.kwargs else self.function
        value = normalised(self._call(stop, around, function, *arguments), "the return value")
        if self.keeps_attempts and value is not None and size(value) > MOST_RESULT // 4:
            _check_size(value)
        change(result, _return_value=value)
        return value

    def _called(self, attempt: HandlersAttempt) -> tuple[Envelope, BaseException | None]:
        """How the task is called, and why it can't be."""
        try:
            return envelope.read(attempt.payload), self.problem
        except (ValueError, TypeError) as error:
            return NO_ENVELOPE, error

    def _begin(self, attempt: HandlersAttempt, called: Envelope) -> ProletarianResult:
        result = made_when_asked(TaskAttempt(self, attempt.claimed, called, attempt.worker_id))
        tell_attempts_before(result, attempt)
        return result

    def ended(self, attempt: HandlersAttempt, error: BaseException | None, verdict: Verdict) -> None:
        """Say that the task has finished, if it has."""
        if not isinstance(verdict, Succeeded | GaveUp):
            return
        result = attempt.state or self._begin(attempt, self._called(attempt)[0])
        if error is None:
            change(result, status=TaskResultStatus.SUCCESSFUL, finished_at=results.now())
            signals.send(signals.task_finished, self.sender, result)
            return
        kind, trace = type(error), error.__traceback__
        result.errors.append(
            TaskError(
                exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
                traceback="".join(format_exception(error)),
            )
        )
        change(result, status=TaskResultStatus.FAILED, finished_at=results.now())
        try:
            # Receivers, Django's own log among them, ask sys.exc_info() what went wrong.
            raise error
        except BaseException:  # noqa: BLE001 # it is the one that was just raised
            error.__traceback__ = trace
            signals.send(signals.task_finished, self.sender, result)
        finally:
            error.__traceback__ = trace

    @property
    def path(self) -> str:
        return self.task.module_path


def _check_size(value: object) -> None:
    """Raise ValueError if the value is longer than what is kept of one."""
    length = len(conf.serializer().encode(value))
    if length > MOST_RESULT:
        raise ValueError(
            f"The return value takes {length:,} characters, and {MOST_RESULT:,} is the most that is stored. Store it "
            "elsewhere, such as in a model, and return its key."
        )


# By job type and backend, as a task's jobs are all alike. Used by all threads of a worker.
_handlers: dict[tuple[str, str], TaskHandler] = {}


def handler_of_task(job_type: str, payload: object) -> Handler | None:
    """The handler of a job whose payload says how a task is called; None for any other payload.

    A task that can't be found, or called, has a handler that raises why.
    """
    if not envelope.is_envelope(payload):
        return None
    stored_alias = envelope.backend_in(payload)
    try:
        task = find_task(job_type)
    except NoHandler as error:
        return _made(lost_task(job_type), job_type, stored_alias, problem=error)
    handler = _handlers.get((job_type, stored_alias))
    if handler is None or handler.task is not task:
        handler = _made(task, job_type, stored_alias)
        if handler.alias == stored_alias:  # it is in the settings: so there are not many
            _handlers[job_type, stored_alias] = handler
    return handler


def _made(task: Task, job_type: str, stored_alias: str, problem: BaseException | None = None) -> TaskHandler:
    alias, backend = backend_for(stored_alias, ProletarianBackend)
    return TaskHandler(
        job_type=job_type,
        function=task.func,
        task=task,
        alias=alias,
        sender=ProletarianBackend if backend is None else type(backend),
        problem=problem,
        keeps_attempts=not isinstance(backend, ProletarianBackend) or backend.stores_results,
        **job_options(task),
    )


@receiver(setting_changed)
def _forget_handlers(*, setting: str, **kwargs: object) -> None:
    if setting == "TASKS":
        _handlers.clear()


handlers.by_payload = handler_of_task
