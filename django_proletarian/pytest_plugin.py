"""The testing tools as pytest fixtures; pytest loads this by its entry point. They need pytest-django.

Nothing of Django is imported before a fixture is used: pytest loads plugins before there are settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_proletarian.testing import LiveWorker

MARKER = "proletarian_worker"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(queues=None, **options): a worker on threads runs jobs during the test, whose commits are real; the "
        "arguments are those of create_queue_worker.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """Give marked tests the fixture, before pytest-django looks at who uses what."""
    if not collector.istestfunction(obj, name):
        return
    own = getattr(obj, "pytestmark", [])
    if collector.get_closest_marker(MARKER) or any(mark.name == MARKER for mark in own):
        pytest.mark.usefixtures(MARKER)(obj)


@pytest.fixture
def proletarian_jobs(db: None, request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """`django_proletarian.testing`: `proletarian_jobs.run_jobs()`, `proletarian_jobs.assert_enqueued(…)`.

    Jobs go by the time that time-machine or freezegun pretend. Where the test's commits are real, the tables are empty
    before and after it.
    """
    from django_proletarian import testing  # noqa: PLC0415 # models, which load when there are settings

    with testing.obeying_frozen_time(), testing.empty_tables_around():
        yield testing


@pytest.fixture
def proletarian_worker(transactional_db: None, request: pytest.FixtureRequest) -> Iterator[LiveWorker]:
    """A worker on threads, which runs during the test. The marker of the same name has its options."""
    from django_proletarian import testing  # noqa: PLC0415 # models, which load when there are settings

    marker = request.node.get_closest_marker(MARKER)
    arguments, options = (marker.args, marker.kwargs) if marker is not None else ((), {})
    with (
        testing.obeying_frozen_time(),
        testing.empty_tables_around(),
        testing.live_worker(*arguments, **options) as worker,
    ):
        yield worker
