"""The project with all four queues, for tests of what the others do; skipped where they are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.comparison.shop import Shop
from tests.scratch import scratch_database

HERE = Path(__file__).parent
MISSING = [name for name in ("django_tasks_db", "procrastinate", "celery") if find_spec(name) is None]


def of_the_others(item: pytest.Item) -> bool:
    """All tests here but those of the table itself."""
    return HERE in item.path.parents and item.path.name != "test_table.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in filter(of_the_others, items):
        item.add_marker(pytest.mark.live)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Here and not by a mark: pytest then tells it in one line.
    if MISSING and of_the_others(item):
        pytest.skip(f"not installed: {', '.join(MISSING)} (make comparison)")


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a database with everybody's tables."""
    with scratch_database() as url:
        Shop(url, tmp_path_factory.mktemp("migrated")).migrate()
        yield url


# Ours in the order in which a worker's message locks them: that of one that was just killed may still run.
TABLES = """
TRUNCATE proletarian.worker, proletarian.job, proletarian.archived_job, proletarian.job_attempt, project_run,
         django_tasks_database_dbtaskresult, procrastinate_jobs, procrastinate_workers CASCADE
"""


@pytest.fixture
def shop(migrated: str, tmp_path: Path) -> Iterator[Shop]:
    """The project with empty queues."""
    shop = Shop(migrated, tmp_path)
    shop.sql(TABLES)
    yield shop
    shop.close()
