"""What tasks and their queues are called in a job's row, both ways."""

from __future__ import annotations

from django_proletarian import conf
from django_proletarian.tasks.framework import DEFAULT_TASK_QUEUE_NAME, Task

DEFAULT_QUEUE = "proletarian/default"  # the original's name for the queue that Django calls "default"


def job_type_of(task: Task) -> str:
    """`shop.tasks/send_receipt`, the job type of `shop.tasks.send_receipt`."""
    return f"{task.func.__module__}/{task.func.__qualname__}"


def queue_of(queue_name: str) -> str:
    """The queue of a row, priorities apart."""
    return DEFAULT_QUEUE if queue_name == DEFAULT_TASK_QUEUE_NAME else queue_name


def queue_name_and_priority(queue: str) -> tuple[str, int]:
    """What Django calls the queue of a row, and the priority that it stands for."""
    queue, priority = conf.queue_and_priority(queue)
    return DEFAULT_TASK_QUEUE_NAME if queue == DEFAULT_QUEUE else str(queue), priority
