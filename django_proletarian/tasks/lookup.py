"""From a job's row to its task: the function that a module has now, called as it was enqueued."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_proletarian.errors import NoHandler
from django_proletarian.tasks.framework import (
    DEFAULT_TASK_BACKEND_ALIAS,
    BaseTaskBackend,
    Task,
    task_backends,
)


def find_task(job_type: str) -> Task:
    """The task that the job type names. Raises NoHandler if there is none, or it is no task: nothing else is called."""
    module, _, name = job_type.rpartition("/")
    path = f"{module}.{name}"
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # a module's own code runs, and may raise anything
        raise NoHandler(
            f'No task for job type "{job_type}": {path} can\'t be imported ({type(error).__name__}: {error}). '
            "If it was renamed or moved, leave a task under its old name until its jobs are done."
        ) from error
    if not isinstance(found, Task):
        raise NoHandler(
            f'No task for job type "{job_type}": {path} is a {type(found).__name__}, not a task, and is not called. '
            "Decorate it with @task."
        )
    return found


def lost_task(job_type: str) -> Task:
    """What stands for a task that is gone: it has the name, and can't be called."""
    module, _, name = job_type.rpartition("/")

    def gone(*args: Any, **kwargs: Any) -> Any:
        find_task(job_type)  # raises, and says why

    gone.__module__, gone.__qualname__, gone.__name__ = module, name, name.rpartition(".")[2]
    return _copy(Task, {"func": gone, "priority": 0, "queue_name": "", "backend": "", "run_after": None})


def as_enqueued(task: Task, **given: Any) -> Task:
    """`task` with these fields, and not validated: a queue or backend may have gone from the settings since."""
    if all(getattr(task, name) == value for name, value in given.items()):
        return task
    values = {field.name: getattr(task, field.name) for field in fields(task)}
    return _copy(type(task), {**values, **given})


def _copy(task_class: type[Task], values: dict[str, Any]) -> Task:
    task = object.__new__(task_class)
    for name, value in {"takes_context": False, **values}.items():
        object.__setattr__(task, name, value)
    return task


def backend_for(stored: str, backend_class: type[BaseTaskBackend]) -> tuple[str, BaseTaskBackend | None]:
    """The alias under which a task was enqueued, with its backend; if that is none of ours any more, one that is.

    If there is none at all, as where a worker serves another project's tasks, the alias stays as it was stored.
    """
    backend = backend_of(stored)
    if isinstance(backend, backend_class):
        return stored, backend
    for alias in (DEFAULT_TASK_BACKEND_ALIAS, *task_backends.settings):
        backend = backend_of(alias)
        if isinstance(backend, backend_class):
            return alias, backend
    return stored, None


def backend_of(alias: str) -> BaseTaskBackend | None:
    """The backend that TASKS has under this alias; None if there is none, or it can't be made."""
    if alias not in task_backends.settings:
        return None
    try:
        backend: BaseTaskBackend = task_backends[alias]
    except ImproperlyConfigured:
        return None
    return backend
