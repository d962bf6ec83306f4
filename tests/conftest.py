"""Fixtures for all tests: the two tables, handlers declared for one test, and waiting with a deadline."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connection, connections

from django_proletarian import handlers
from django_proletarian.connection import ClaimConnection
from tests.scratch import Scratch, scratch_database

T = TypeVar("T")


def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means: three for two cores, since tests of processes mostly wait for them."""
    return max(1, 3 * (os.cpu_count() or 1) // 2)


@pytest.fixture(autouse=True)
def _handlers_of_one_test() -> Iterator[None]:
    """Handlers that a test declares are forgotten after it."""
    before = dict(handlers._registered)
    yield
    handlers._registered.clear()
    handlers._registered.update(before)


_coverages_tracer = sys.gettrace()


@pytest.fixture(autouse=True)
def _measured_again() -> None:
    """An exception from another thread that happens upon coverage's own code has Python end that thread's tracing."""
    if sys.gettrace() is None and _coverages_tracer is not None:
        sys.settrace(_coverages_tracer)


@pytest.hookimpl(tryfirst=True)  # before pytest-django looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with real commits empty no tables but those they write to, which is many times as fast.

    Those with a project of their own start processes.
    """
    ours = pytest.mark.django_db(transaction=True, available_apps=["django_proletarian", "tests.app"])
    for item in items:
        if "committed" in getattr(item, "fixturenames", ()):
            item.add_marker(ours)
        if "scratch" in getattr(item, "fixturenames", ()):
            item.add_marker("live")


@pytest.fixture
def committed(transactional_db: None) -> Iterator[None]:
    """Real commits, with empty job tables before and after: Django's flush does not see tables in another schema."""
    _truncate()
    yield
    _truncate()


def _truncate() -> None:
    with connection.cursor() as cursor:
        # In the order in which a worker's message locks them: that of one that was just killed may still run.
        tables = ", ".join(f"proletarian.{table}" for table in ("worker", "job", "archived_job", "job_attempt"))
        cursor.execute(f"TRUNCATE {tables}")


@pytest.fixture
def claim(committed: None) -> Iterator[ClaimConnection]:
    """A claim connection, as a worker thread has one."""
    with ClaimConnection("default", "tests-1") as connection:
        yield connection


def eventually(condition: Callable[[], T], seconds: float = 60) -> T:
    """Wait until `condition` gives a true value, and return it; fail if it has not after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} seconds: {condition}; last value {value!r}")
        time.sleep(0.02)


def rows(table: str, columns: str = "*", alias: str = "default") -> list[dict[str, Any]]:
    """The rows of a table as they are stored."""
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {table}")
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    """A Django project of its own, with an empty database."""
    with scratch_database() as url:
        yield Scratch(tmp_path, url)
