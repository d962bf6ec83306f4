"""The benchmark's task, which does nothing; `.using(backend=…)` says which backend runs it."""

from __future__ import annotations

from django_proletarian.tasks import task


@task
def nothing(number: int, text: str) -> None:
    pass
