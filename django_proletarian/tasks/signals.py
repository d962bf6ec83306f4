"""Django's three signals of tasks, sent so that no receiver changes what becomes of a task."""

from __future__ import annotations

import logging

from django.dispatch import Signal

from django_proletarian.tasks.framework import (
    BaseTaskBackend,
    TaskResult,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_signals,
    task_started,
)

logger = logging.getLogger("django_proletarian.worker")

__all__ = ["send", "task_enqueued", "task_finished", "task_started"]


def send(signal: Signal, sender: type[BaseTaskBackend], result: TaskResult) -> None:
    """Tell all receivers; an error of one is logged, by Django or here, and the others are told."""
    if _is_for_a_silent_log(signal, result):
        return
    try:
        signal.send_robust(sender, task_result=result)
    except SystemExit:
        logger.exception("A receiver of a task's signal called for the end of the process. Task %s goes on.", result.id)


# What Django itself connects, which is all that most projects have: it writes a line to its log, at this level.
_DJANGOS_LOGS = {
    task_enqueued: ("log_task_enqueued", logging.DEBUG),
    task_started: ("log_task_started", logging.INFO),
    task_finished: ("log_task_finished", logging.INFO),
}


def _is_for_a_silent_log(signal: Signal, result: TaskResult) -> bool:
    """Whether the only receiver is Django's, and would write nothing: to find that out by sending costs a tenth of all
    that a worker does for a small task.
    """
    if len(signal.receivers) != 1 or result.status == TaskResultStatus.FAILED:
        return False
    [((receiver, _sender), *_)] = signal.receivers
    name, level = _DJANGOS_LOGS[signal]
    return receiver == id(getattr(task_signals, name, None)) and not task_signals.logger.isEnabledFor(level)
