"""Who is a backend of Django's tasks, and what it says that it can."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from django_proletarian.tasks import ProletarianBackend
from django_proletarian.tasks.framework import BaseTaskBackend
from tests.comparison.claims import claim

BACKEND = "backend of `django.tasks`"
FLAGS = "`supports_defer`, `supports_async_task`, `supports_get_result`, `supports_priority`"


@claim(BACKEND, "django-proletarian", "yes")
def test_ours_is_a_backend() -> None:
    assert issubclass(ProletarianBackend, BaseTaskBackend)


@claim(BACKEND, "django-tasks-db", "yes")
def test_theirs_is_a_backend() -> None:
    from django_tasks_db import DatabaseBackend

    assert issubclass(DatabaseBackend, BaseTaskBackend)


@claim(BACKEND, "procrastinate", "no, an API of its own")
def test_procrastinate_has_none() -> None:
    assert mentions("procrastinate", "BaseTaskBackend") == []
    assert mentions("procrastinate", "def defer(")


@claim(BACKEND, "Celery", "no, an API of its own")
def test_celery_has_none() -> None:
    assert mentions("celery", "BaseTaskBackend") == []
    assert mentions("celery", "def delay(")


def mentions(package: str, text: str) -> list[str]:
    """The modules of a package that have `text` in them; a backend has to name the class that it is made of."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    modules = Path(found.origin).parent.rglob("*.py")
    return [str(module) for module in modules if text in module.read_text()]


def flags(backend: type[BaseTaskBackend]) -> list[bool]:
    return [getattr(backend, flag) for flag in FLAGS.replace("`", "").split(", ")]


@claim(FLAGS, "django-proletarian", "all four")
def test_ours_supports_all() -> None:
    assert flags(ProletarianBackend) == [True] * 4


@claim(FLAGS, "django-tasks-db", "all four")
def test_theirs_supports_all() -> None:
    from django_tasks_db import DatabaseBackend

    assert flags(DatabaseBackend) == [True] * 4


def test_the_flags_are_all_that_django_has() -> None:
    there = {name for name in vars(BaseTaskBackend) if name.startswith("supports_")}
    assert there == set(FLAGS.replace("`", "").split(", "))


@pytest.mark.parametrize("package", ["procrastinate", "celery"])
def test_what_is_looked_for_is_found_where_it_is(package: str) -> None:
    """So that nothing found means that nothing is there."""
    assert mentions("django_tasks_db", "BaseTaskBackend")
    assert mentions(package, "import ")
