"""The same two tasks in the words of each queue: one fails when it runs first, one is killed when it runs first."""

from __future__ import annotations

import os
import threading
from typing import Any

from celery import shared_task
from procrastinate.contrib.django import app as procrastinate_app

from django_proletarian.tasks import task
from tests.comparison.project.models import Run


def begin(name: str) -> bool:
    """Leave a row that is committed at once; return whether it is the first of this name."""
    Run.objects.create(task=name, pid=os.getpid())
    return Run.objects.filter(task=name).count() == 1


def fail_first(name: str) -> None:
    if begin(name):
        raise ValueError("broken")


def hang_first(name: str) -> None:
    if begin(name):
        threading.Event().wait()  # until the process is killed


@task(retry_strategy={"retries": 1, "delays": [0]})
def ours_that_fails() -> None:
    fail_first("ours_that_fails")


@task(retry_strategy={"retries": 1, "delays": [0]})
def ours_that_is_killed() -> None:
    hang_first("ours_that_is_killed")


@task(backend="django-tasks-db")
def tasks_db_that_fails() -> None:
    fail_first("tasks_db_that_fails")


@task(backend="django-tasks-db")
def tasks_db_that_is_killed() -> None:
    hang_first("tasks_db_that_is_killed")


@procrastinate_app.task(retry=1)
def procrastinate_that_fails() -> None:
    fail_first("procrastinate_that_fails")


@procrastinate_app.task
def procrastinate_that_is_killed() -> None:
    hang_first("procrastinate_that_is_killed")


@shared_task(autoretry_for=(ValueError,), default_retry_delay=0)
def celery_that_fails() -> None:
    fail_first("celery_that_fails")


@shared_task(bind=True)
def celery_that_retries(self: Any) -> None:
    try:
        fail_first("celery_that_retries")
    except ValueError as error:
        raise self.retry(exc=error, countdown=0) from error


@shared_task
def celery_that_is_killed() -> None:
    hang_first("celery_that_is_killed")


@shared_task(acks_late=True)
def celery_with_acks_late() -> None:
    hang_first("celery_with_acks_late")


@shared_task(reject_on_worker_lost=True)
def celery_with_reject() -> None:
    hang_first("celery_with_reject")


@shared_task(acks_late=True, reject_on_worker_lost=True)
def celery_with_both() -> None:
    hang_first("celery_with_both")


@shared_task(retry_on_worker_lost=True, default_retry_delay=0)
def celery_with_retry() -> None:
    hang_first("celery_with_retry")
