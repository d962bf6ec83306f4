"""Tasks of the tests. They are module-level functions, as all tasks are, and leave traces that tests read."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

from django_proletarian import RetryStrategy
from django_proletarian.models import Job
from django_proletarian.tasks import task
from tests.app.models import Entry

SEEN: list[Any] = []  # what tasks in this process left
HOOKS: dict[str, Any] = {}  # what tests let tasks call


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task(queue_name="mail", priority=10)
def note(*args: Any, **kwargs: Any) -> None:
    SEEN.append((args, kwargs))


@task
async def add_later(a: int, b: int) -> int:
    return a + b


@task(takes_context=True)
def attempt_number(context: Any) -> int:
    SEEN.append(context.task_result)
    number: int = context.attempt
    return number


@task
def fail(message: str = "broken") -> None:
    raise ValueError(message)


@task(retry_strategy=RetryStrategy(retries=5, delays=[0]), takes_context=True)
def succeed_at(context: Any, attempt: int) -> str:
    if context.attempt < attempt:
        raise KeyError(f"attempt {context.attempt}")
    return f"attempt {context.attempt}"


@task
def give_back(kind: str) -> Any:
    return {"object": object(), "nan": float("nan"), "tuple": (1, (2,)), "long": "x" * 1_000_001}[kind]


@task(atomic=True)
def write_and_fail(text: str) -> None:
    Entry.objects.create(text=text)
    raise ValueError(text)


@task(lease=timedelta(minutes=1))
def is_put_off() -> bool:
    return Job.objects.scheduled().filter(attempts=1).exists()


@task(time_limit=timedelta(seconds=0.2))
def spin() -> None:
    while True:
        pass


@task(retry_strategy={"retries": 1, "delays": [3600]})
def kill_at_first(flag: str) -> str:
    try:
        os.mkdir(flag)
    except FileExistsError:
        return "survived"
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@task
def wait() -> None:
    HOOKS["wait"]()


@task
def exit_process() -> None:
    raise SystemExit(3)


def plain(text: str) -> None:
    """No task."""
    SEEN.append(text)


class Holder:
    """No task either."""
