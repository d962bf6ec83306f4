"""The wheel as a stranger gets it: in an empty environment, with the dependencies that it declares and no others.

And the sdist, from which anybody can build the same wheel, byte for byte.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import django
import psycopg
import pytest
from psycopg import sql

from django_proletarian.version import __version__

pytestmark = pytest.mark.live

REPOSITORY = Path(__file__).resolve().parents[2]

SETTINGS = """
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", **{database!r}}}}}
INSTALLED_APPS = ["django_proletarian", "greetings"]
SECRET_KEY = "a stranger's"
USE_TZ = True
"""
JOBS = """
from pathlib import Path

from django_proletarian import job_handler


@job_handler
def greet(payload):
    Path(payload["file"]).write_text(f"Hello, {payload['name']}!")
"""
ENQUEUE = """
from django.db import transaction

from greetings.jobs import greet

with transaction.atomic():
    greet.enqueue({"file": "greeting.txt", "name": "wheel"})
"""
SHOW_ARCHIVE = """
from django_proletarian.models import ArchivedJob, Job

for job in ArchivedJob.objects.all():
    print(job.job_type, job.status, job.attempts, job.payload["name"])
print(Job.objects.count(), "left")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(REPOSITORY, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [wheel] = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    [sdist] = built.glob("*.tar.gz")
    return sdist


def build(source: Path, directory: Path) -> Path:
    """Build sdist and wheel out of `source` into `directory`."""
    # By the backend itself, which is among the tests' own requirements: nothing is downloaded for it.
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(directory), cwd=source)
    return directory


@pytest.fixture
def database() -> Iterator[dict[str, object]]:
    """A new database on the tests' server, as Django's settings name one."""
    url = os.environ["DATABASE_URL"]
    name = f"wheel_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            with psycopg.connect(urlunsplit(urlsplit(url)._replace(path=f"/{name}"))) as new:
                info = new.info
                yield {
                    "NAME": name,
                    "HOST": info.host,
                    "PORT": info.port,
                    "USER": info.user,
                    "PASSWORD": info.password,
                }
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata] = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
        [entry_points] = [archive.read(name).decode() for name in names if name.endswith("/entry_points.txt")]
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"django_proletarian"}
    assert not [name for name in names if "/tests/" in name or "__pycache__" in name]
    assert {
        "django_proletarian/py.typed",
        "django_proletarian/locale/nb/LC_MESSAGES/django.mo",
        "django_proletarian/locale/nb/LC_MESSAGES/django.po",
        "django_proletarian/static/django_proletarian/overview.css",
        "django_proletarian/templates/django_proletarian/overview.html",
        "django_proletarian/migrations/0001_initial.py",
        "django_proletarian/management/commands/proletarian_worker.py",
    } <= names
    assert entry_points.split() == ["[pytest11]", "proletarian", "=", "django_proletarian.pytest_plugin"]
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert required == ["Requires-Dist: django>=5.2", "Requires-Dist: psycopg>=3.2"]


def test_the_sdist_has_what_it_takes_to_test_and_to_document_it(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.split("/")[0] for name in names} == {
        *(".github", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "PKG-INFO", "README.md", "pyproject.toml"),
        *("django_proletarian", "docs", "example_project", "tests"),
    }
    assert {"tests/conftest.py", "docs/conf.py", "example_project/manage.py", ".github/SECURITY.md"} <= names
    assert {f"django_proletarian/locale/nb/LC_MESSAGES/django.{kind}" for kind in ("po", "mo")} <= names
    assert not [name for name in names if "__pycache__" in name]


def test_the_version_is_the_one_of_the_version_module(wheel: Path, sdist: Path) -> None:
    assert wheel.name == f"django_proletarian-{__version__}-py3-none-any.whl"
    assert sdist.name == f"django_proletarian-{__version__}.tar.gz"


def test_who_builds_it_elsewhere_and_later_gets_the_same_bytes(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    for file in source.rglob("*"):
        os.utime(file, (2e9, 2e9))
        # Another umask; what may be run stays so, as git keeps it.
        file.chmod(0o700 if file.is_dir() or file.stat().st_mode & 0o100 else 0o600)
    again = build(source, tmp_path / "again")
    assert (again / wheel.name).read_bytes() == wheel.read_bytes()
    assert (again / sdist.name).read_bytes() == sdist.read_bytes()


def test_an_index_of_packages_can_show_the_description(wheel: Path, sdist: Path) -> None:
    pytest.importorskip("twine", reason="twine is among the requirements of [dev], not of [test]")
    said = run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist), cwd=REPOSITORY)
    assert said.count("PASSED") == 2


@pytest.mark.timeout(300)  # pip may have to download Django
def test_the_wheel_alone_migrates_and_runs_a_job(wheel: Path, database: dict[str, object], tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    project = tmp_path / "project"
    (project / "greetings").mkdir(parents=True)
    (project / "greetings" / "__init__.py").touch()
    (project / "greetings" / "jobs.py").write_text(JOBS)
    (project / "settings.py").write_text(SETTINGS.format(database=database))

    # The versions under test here, so that each pair of Python and Django tests itself.
    (tmp_path / "constraints.txt").write_text(f"Django=={django.__version__}\npsycopg=={psycopg.__version__}\n")
    # Python compiles what it imports, which is a small part of Django.
    install = (python, "-m", "pip", "install", "-q", "--no-compile", "-c", str(tmp_path / "constraints.txt"))
    run(*install, f"{wheel}[binary]", cwd=tmp_path)

    def manage(*arguments: str) -> str:
        return run(python, "-m", "django", *arguments, "--settings=settings", "--pythonpath=.", cwd=project)

    manage("migrate")
    manage("shell", "-c", ENQUEUE)
    log = manage("proletarian_worker", "--drain")
    assert "job-finished" in log
    assert (project / "greeting.txt").read_text() == "Hello, wheel!"
    assert manage("shell", "-v0", "-c", SHOW_ARCHIVE).split("\n")[-3:-1] == [
        "greetings.jobs/greet success 1 wheel",
        "0 left",
    ]


def run(*command: str, cwd: Path) -> str:
    """Run a command with nothing of this process's Python in its environment, and return all that it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DJANGO_"))}
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,  # the assertion shows what it printed
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout
