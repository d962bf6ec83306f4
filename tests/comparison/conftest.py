"""The project with all four queues, for tests of what the others do; skipped where they are not installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.comparison.shop import Shop
from tests.scratch import scratch_database

HERE = Path(__file__).parent
OTHERS = ("django_tasks_db", "procrastinate", "celery")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All but the test of the table itself need the others, and processes."""
    missing = [name for name in OTHERS if importlib.util.find_spec(name) is None]
    for item in items:
        if HERE in item.path.parents and item.path.name != "test_table.py":
            item.add_marker(pytest.mark.live)
            item.add_marker(
                pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (make comparison)")
            )


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a database with everybody's tables."""
    with scratch_database() as url:
        Shop(url, tmp_path_factory.mktemp("migrated")).migrate()
        yield url


TABLES = """
TRUNCATE project_run, proletarian.job, proletarian.archived_job, proletarian.job_attempt, proletarian.worker,
         django_tasks_database_dbtaskresult, procrastinate_jobs, procrastinate_workers CASCADE
"""


@pytest.fixture
def shop(migrated: str, tmp_path: Path) -> Iterator[Shop]:
    """The project with empty queues."""
    shop = Shop(migrated, tmp_path)
    shop.sql(TABLES)
    yield shop
    shop.close()
