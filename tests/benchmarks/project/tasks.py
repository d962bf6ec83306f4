"""The benchmark's tasks, which do nothing: one for each backend, declared for it as a project's are."""

from __future__ import annotations

from django_proletarian.tasks import task
from django_proletarian.tasks.framework import task_backends


@task
def nothing(number: int, text: str) -> None:
    pass


@task(backend="bare")
def nothing_bare(number: int, text: str) -> None:
    pass


TASKS = {"default": nothing, "bare": nothing_bare}

if "theirs" in task_backends.settings:

    @task(backend="theirs")
    def nothing_theirs(number: int, text: str) -> None:
        pass

    TASKS["theirs"] = nothing_theirs
