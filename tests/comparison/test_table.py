"""README's table says what the tests here show, cell for cell, and of which versions."""

from __future__ import annotations

import importlib
import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.comparison.claims import CLAIMS
from tests.docs.pages import PAGES, REPOSITORY, rows

README = PAGES[0]
SECTION = "## Or use Django's own tasks"
COLUMNS = ("django-proletarian", "django-tasks-db", "procrastinate", "Celery")
VERSIONS = re.compile(r"\((django-tasks-db) ([\d.]+), (procrastinate) ([\d.]+), (Celery) ([\d.]+)\)")


def test_each_cell_has_a_test_and_each_test_its_cell() -> None:
    for module in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"tests.comparison.{module.stem}")
    table = {
        (row, column): cell
        for row, *cells in rows(README, SECTION)
        for column, cell in zip(COLUMNS, cells, strict=True)
        if cell
    }
    assert table == CLAIMS


def named() -> dict[str, str]:
    """The versions that README speaks of, by lower-cased name."""
    names = VERSIONS.search(README.read_text().replace("\n", " "))
    assert names is not None
    groups = names.groups()
    return {name.lower(): number for name, number in zip(groups[::2], groups[1::2], strict=True)}


def test_the_extra_installs_the_versions_that_readme_speaks_of() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    pinned = dict(
        re.fullmatch(r"([\w-]+)(?:\[\w+\])?==([\d.]+)\.\*", requirement).groups()
        for requirement in project["optional-dependencies"]["comparison"]
        if "==" in requirement
    )
    assert pinned == named()


@pytest.mark.parametrize("name", ["django-tasks-db", "procrastinate", "celery"])
def test_the_versions_installed_are_those(name: str) -> None:
    try:
        there = version(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed (make comparison)")
    assert there.startswith(f"{named()[name]}.")
