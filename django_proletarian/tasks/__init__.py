"""Django's tasks with Proletarian under them: the backend, and `@task` with the options of `@job_handler`.

Imported where TASKS names the backend; from then on workers of this process run tasks.
"""

from django_proletarian.tasks.backend import ProletarianBackend
from django_proletarian.tasks.run import handler_of_task as _handler_of_task  # noqa: F401 # it makes itself known
from django_proletarian.tasks.task import ProletarianTask, task

__all__ = ["ProletarianBackend", "ProletarianTask", "task"]
