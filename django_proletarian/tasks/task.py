"""A task with what a job handler can say beside: `@task(retry_strategy=…, atomic=True, time_limit=…)`.

From Django 6.1 on, and in the backport, Django's own `@task` takes these arguments where the backend is ours. The one
here takes them everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Concatenate, Literal, cast, overload

from django.utils.module_loading import import_string

from django_proletarian.decorators import lease_seconds
from django_proletarian.errors import InvalidHandler
from django_proletarian.handlers import FailedJobCallback
from django_proletarian.retry import RetryStrategyFunction, RetryStrategyLike, as_strategy
from django_proletarian.tasks.framework import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_PRIORITY,
    DEFAULT_TASK_QUEUE_NAME,
    InvalidTask,
    Task,
    TaskContext,
    task_backends,
)
from django_proletarian.time_limits import as_seconds
from django_proletarian.typing_variables import Parameters, Result_co


@dataclass(frozen=True, slots=True, kw_only=True)
class ProletarianTask(Task):
    """A task of our backend; the fields of its own are the options of `@job_handler`."""

    retry_strategy: RetryStrategyLike | RetryStrategyFunction = None  # None for the RETRY_STRATEGY setting
    failed_job: FailedJobCallback | None = None  # None for the FAILED_JOB setting
    atomic: bool = False
    interruptible: bool | None = None
    time_limit: float | timedelta | None = None  # None for the TIME_LIMIT setting
    lease: float | timedelta | None = None  # None: the row is locked while the task runs

    def __post_init__(self) -> None:
        try:
            if self.retry_strategy is not None and not callable(self.retry_strategy):
                object.__setattr__(self, "retry_strategy", as_strategy(self.retry_strategy))
            object.__setattr__(self, "time_limit", as_seconds(self.time_limit))
            object.__setattr__(self, "lease", lease_seconds(self.lease))
        except (ValueError, InvalidHandler) as error:
            raise InvalidTask(f"{self.func.__module__}.{self.func.__qualname__}: {error}") from error
        if self.atomic and self.lease is not None:
            raise InvalidTask(
                f"{self.func.__module__}.{self.func.__qualname__} is atomic and has a lease, which exclude each other. "
                "Leave one out: atomic=True is for short tasks, lease=… for long ones."
            )
        # Not super(): a dataclass with slots is another class than the one that the name stands for here.
        Task.__post_init__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """By the name of its module's task, whose function pickle could not find there. As Django does from 6.1 on."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "func"}
        return _restored, (self.module_path, given)


JOB_OPTIONS = tuple(
    field.name for field in fields(ProletarianTask) if field.name not in {field.name for field in fields(Task)}
)


def _restored(path: str, given: dict[str, Any]) -> ProletarianTask:
    found = import_string(path)
    if not isinstance(found, Task):
        raise ValueError(f"Expected {path!r} to point to a Task instance.")  # what Django raises
    return ProletarianTask(func=found.func, **given)


def job_options(task: Task) -> dict[str, Any]:
    """What the task says that a handler can say, by name; nothing for a task that was made for another backend."""
    return {name: value for name in JOB_OPTIONS if (value := getattr(task, name, None)) is not None}


@overload
def task(function: Callable[Parameters, Result_co], /) -> Task[Parameters, Result_co]: ...


@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: Literal[False] = False,
    **options: Any,
) -> Callable[[Callable[Parameters, Result_co]], Task[Parameters, Result_co]]: ...


@overload
def task(
    *,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    takes_context: Literal[True],
    **options: Any,
) -> Callable[[Callable[Concatenate[TaskContext, Parameters], Result_co]], Task[Parameters, Result_co]]: ...


def task(
    function: Callable[..., Any] | None = None,
    *,
    priority: int = DEFAULT_TASK_PRIORITY,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **options: Any,
) -> Any:
    """Django's `@task`, with the options that `@job_handler` has, such as retry_strategy, atomic and time_limit.

    Where TASKS names another backend, such as Django's for tests, those are left out.
    """
    unknown = options.keys() - set(JOB_OPTIONS)
    if unknown:
        raise TypeError(f"task() has no option {sorted(unknown)[0]!r}. It has {', '.join(JOB_OPTIONS)}.")

    def decorate(function: Callable[..., Any]) -> Task:
        task_class = cast("Callable[..., Task]", task_backends[backend].task_class)
        is_ours = isinstance(task_class, type) and issubclass(task_class, ProletarianTask)
        return task_class(
            func=function,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=None,
            **(options if is_ours else {}),
        )

    return decorate if function is None else decorate(function)
