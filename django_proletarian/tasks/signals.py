"""Django's three signals of tasks, sent so that no receiver changes what becomes of a task."""

from __future__ import annotations

import logging

from django.dispatch import Signal

from django_proletarian.tasks.framework import BaseTaskBackend, TaskResult, task_enqueued, task_finished, task_started

logger = logging.getLogger("django_proletarian.worker")

__all__ = ["send", "task_enqueued", "task_finished", "task_started"]


def send(signal: Signal, sender: type[BaseTaskBackend], result: TaskResult) -> None:
    """Tell all receivers; an error of one is logged, by Django or here, and the others are told."""
    try:
        signal.send_robust(sender, task_result=result)
    except SystemExit:
        logger.exception("A receiver of a task's signal called for the end of the process. Task %s goes on.", result.id)
