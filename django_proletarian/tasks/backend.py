"""Django's tasks with Proletarian under them: `TASKS = {"default": {"BACKEND": …, "OPTIONS": {…}}}`.

Made when the first task's module is imported, which may be before the apps are ready, and once in each thread. So it
keeps nothing but its settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.checks import CheckMessage

from django_proletarian import api
from django_proletarian.new_jobs import NewJob
from django_proletarian.tasks import results, signals
from django_proletarian.tasks.checks import problems
from django_proletarian.tasks.envelope import Envelope
from django_proletarian.tasks.framework import BaseTaskBackend, InvalidTask, Task, TaskResult, TaskResultStatus
from django_proletarian.tasks.naming import DEFAULT_QUEUE, job_type_of, queue_of
from django_proletarian.tasks.results import ProletarianResult
from django_proletarian.tasks.task import ProletarianTask
from django_proletarian.tasks.values import normalised


class ProletarianBackend(BaseTaskBackend):
    """One row in the job table for each task, in the caller's transaction.

    OPTIONS are STORE_RESULTS (default True) and DATABASE (an alias; default what the routers say).
    """

    task_class = ProletarianTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def stores_results(self) -> bool:
        """Whether what a task returned is kept."""
        return bool(self.options.get("STORE_RESULTS", True))

    def validate_task(self, task: Task) -> None:
        """Raises InvalidTask for a task that can't be."""
        super().validate_task(task)
        if not isinstance(task.queue_name, str) or task.queue_name in ("", ":", DEFAULT_QUEUE):
            raise InvalidTask(
                f"Queue {task.queue_name!r} can't be a task's. Give it a name; that of {DEFAULT_QUEUE} is \"default\"."
            )

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Put the task in the queue with one INSERT in the caller's transaction.

        Raises InvalidTask, TypeError or ValueError before any SQL for what can't be a task, or an argument of one.
        """
        self.validate_task(task)
        result = ProletarianResult(
            task=task,
            id="",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=[normalised(value, f"args[{place}]") for place, value in enumerate(args)],
            kwargs={name: normalised(value, f"kwargs[{name!r}]") for name, value in kwargs.items()},
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        called = Envelope(args=result.args, kwargs=result.kwargs, backend=self.alias, run_after=task.run_after)
        job = NewJob(
            job_type_of(task),
            called.as_payload(),
            queue=queue_of(task.queue_name),
            priority=int(task.priority),
            process_at=task.run_after,
        )
        job_id, enqueued_at = api.enqueue_dated(job, using=self.options.get("DATABASE"))
        results.change(result, id=str(job_id), enqueued_at=results.in_projects_time(enqueued_at))
        signals.send(signals.task_enqueued, type(self), result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """The result of the task with this id, whether it waits, runs or has finished.

        Raises TaskResultDoesNotExist if the database has no such task.
        """
        return results.read_result(self, api.alias_of_jobs(self.options.get("DATABASE")), result_id)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """What is wrong with the backend's settings; asks no database."""
        return [*super().check(**kwargs), *problems(self.alias, self.queues, self.options)]
