"""The pytest plugin and the mixin as a project's own tests use them, in processes of their own."""

from __future__ import annotations

import re

import pytest

from tests.scratch import Scratch
from tests.testing_tools.project_files import FILES, SETTINGS

pytestmark = pytest.mark.live

# Not by the entry points, so that it is this very plugin and no other; test_wheel looks at the entry point.
PLUGINS = ["pytest_django.plugin", "xdist.plugin", "django_proletarian.pytest_plugin"]


@pytest.fixture
def project(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    scratch.configure(SETTINGS)
    for path, text in FILES.items():
        scratch.write(path, text)
    return scratch


def run_tests(project: Scratch, *arguments: str) -> str:
    """Run the project's tests, which must pass; return what pytest printed."""
    plugins = [argument for plugin in PLUGINS for argument in ("-p", plugin)]
    files = [argument for argument in arguments if argument.endswith(".py")] or ["test_shop.py", "shop/tests.py"]
    options = [argument for argument in arguments if argument not in files]
    return project.run("-m", "pytest", "-q", "--strict-markers", *plugins, *options, *files)


def passed(output: str) -> int:
    [count] = re.findall(r"(\d+) passed", output)
    return int(count)


def test_the_tools_work_on_a_database_for_each_process(project: Scratch) -> None:
    assert passed(run_tests(project, "-n", "2")) == 17


def test_the_tools_work_on_a_database_that_is_kept(project: Scratch) -> None:
    # Django itself can't restore there what migrations made: the run before has flushed it.
    kept = ("--reuse-db", "-k", "not erialized")
    assert passed(run_tests(project, *kept)) == passed(run_tests(project, *kept)) == 14
    run_tests(project, "--create-db", "test_shop.py", "-k", "fixture")  # which is dropped at its end


def test_the_tools_work_without_migrations(project: Scratch) -> None:
    assert passed(run_tests(project, "--nomigrations", "test_shop.py")) == 10


def test_the_mixin_works_with_djangos_runner_in_parallel(project: Scratch) -> None:
    assert "Ran 7 tests" in project.manage("test", "--parallel", "2", "--noinput")


def test_the_marker_is_known_and_the_fixtures_tell_what_they_are(project: Scratch) -> None:
    plugins = [argument for plugin in PLUGINS for argument in ("-p", plugin)]
    assert "@pytest.mark.proletarian_worker(queues=None, **options)" in project.run(
        "-m", "pytest", "--markers", *plugins
    )
    assert "proletarian_jobs -- " in project.run("-m", "pytest", "--fixtures", *plugins, "test_shop.py")
