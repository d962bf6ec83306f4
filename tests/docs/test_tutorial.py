"""The tutorial, followed to the letter: each command and file of the page, in an empty directory, with the wheel.

Only its port is another one, so that two who follow it at once are not in each other's way. The project that comes out
of it then gets a test suite of its own, which uses every testing tool, and runs as the how-to about tests says it can.
With the Python and the Django that run these tests; a server of theirs stands in for the reader's.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import django
import psycopg
import pytest

from django_proletarian import testing
from django_proletarian.version import __version__
from tests.conftest import eventually
from tests.docs.pages import REPOSITORY
from tests.postgres import Postgres, free_port

pytestmark = [
    pytest.mark.live,
    pytest.mark.server,
    pytest.mark.timeout(400),  # pip may have to download Django
    pytest.mark.skipif(
        not all(map(shutil.which, ("psql", "createdb", "curl"))),
        reason="the tutorial wants psql, createdb and curl, which this machine has not all",
    ),
]

PAGE = REPOSITORY / "docs" / "tutorial" / "index.md"
STEP = re.compile(
    r"^```(?:console|\{code-block\} \w+\n(?::caption: (?P<file>[^\n]+)|:class: (?P<terminal>terminal))\n)\n"
    r"(?P<text>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
SUITE = REPOSITORY / "tests" / "docs" / "suite"
PORT = str(free_port())
ADDRESS = f"http://127.0.0.1:{PORT}"


class Reader:
    """Somebody with a shell in a directory, who does what the page says and keeps an eye on what is printed."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self.environment = environment

        self.printed: list[str] = []
        self.terminals: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def type(self, command: str) -> None:
        """Run a command where and as the ones before have left the shell: in their directory and environment."""
        remember = 'pwd > "$OLDPWD_FILE"; export -p > "$EXPORTS_FILE"'
        state = {"OLDPWD_FILE": str(self.directory / "pwd"), "EXPORTS_FILE": str(self.directory / "exports")}
        done = subprocess.run(
            ["bash", "-ec", f"{self._resume()}\n{command}\n{remember}"],
            env={**self.environment, **state},
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,  # the assertion shows what it printed
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        self.printed.append(done.stdout)

    def leave_running(self, command: str) -> None:
        """Run a command in a terminal of its own."""
        output = self.directory / f"terminal-{len(self.terminals)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-ec", f"{self._resume()}\nexec {command}"],
                env={**self.environment, "PYTHONUNBUFFERED": "1"},
                cwd=self.directory,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.terminals[command] = (process, output)

    def sees(self, command: str, text: str) -> None:
        """Wait until the terminal of `command` shows `text`."""
        process, output = self.terminals[command]
        eventually(lambda: text in output.read_text() or process.poll() is not None)
        assert text in output.read_text(), output.read_text()

    def write(self, path: str, text: str, *, at_its_end: bool) -> None:
        """Write a file of the project."""
        with (self.project / path).open("a" if at_its_end else "w") as file:
            file.write(text)

    @property
    def project(self) -> Path:
        return Path((self.directory / "pwd").read_text().strip())

    def _resume(self) -> str:
        if not (self.directory / "pwd").exists():
            return ""
        return f'. "{self.directory}/exports"; cd "{self.project}"'

    def close(self) -> None:
        """Close all terminals."""
        running = [process for process, _ in self.terminals.values() if process.poll() is None]
        for process in running:
            # Not Ctrl-C: a shell starts what it puts into the background deaf to that, and these inherit it.
            os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            process.wait(60)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader whose pip finds this checkout's wheel and the Django under test."""
    wheels = tmp_path / "wheels"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(
        f"Django=={django.__version__}\npsycopg=={psycopg.__version__}\ndjango-proletarian=={__version__}\n"
        + "".join(f"{name}=={version(name)}\n" for name in TESTED_WITH)
    )
    home = tmp_path / "home"
    home.mkdir()
    with Postgres() as server:
        address = urlsplit(server.url)
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON", "DJANGO_"))
        }
        inherited.pop("DATABASE_URL", None)
        # `python`, as a reader has it.
        programs = tmp_path / "bin"
        programs.mkdir()
        (programs / "python").symlink_to(Path(sys.executable).resolve())
        environment = inherited | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PIP_CONSTRAINT": str(constraints),
            "PIP_FIND_LINKS": f"{wheels} {inherited.get('PIP_FIND_LINKS', '')}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "0",  # "do not compile", as pip reads it: most of Django is never imported
            "PGHOST": str(address.hostname),
            "PGPORT": str(address.port),
            "PGUSER": str(address.username),
        }
        reader = Reader(home, environment)
        try:
            yield reader
        finally:
            reader.close()


def test_each_step_of_the_tutorial_does_what_it_says_and_every_testing_tool_works_there(reader: Reader) -> None:
    follow_the_page(reader)
    run_a_suite_with_every_testing_tool(reader)


def follow_the_page(reader: Reader) -> None:
    for step in STEP.finditer(PAGE.read_text().replace("8765", PORT)):
        match step["file"], step["terminal"]:
            case str(file), _:
                path, _, where = file.partition(", ")
                reader.write(path, step["text"], at_its_end=where == "at its end")
            case _, str():
                [command] = commands(step["text"])
                reader.leave_running(command)
                reader.sees(command, SHOWN[command])
            case _:
                for command in commands(step["text"]):
                    reader.type(command)
                    EXPECTED.get(command, lambda _: None)(reader)
    assert any("OK" in printed and "Ran 1 test" in printed for printed in reader.printed[-1:])
    reader.sees(WORKER, "handle-job-exception")
    reader.sees(WORKER, "proletarian.retry/retrying")
    with browser() as look:
        assert "shop.jobs/send_receipt" in look("/admin/django_proletarian/archivedjob/")


def commands(text: str) -> list[str]:
    lines = text.splitlines()
    assert all(line.startswith("$ ") for line in lines), text
    return [line.removeprefix("$ ") for line in lines]


WORKER = "python manage.py proletarian_worker"
SHOWN = {
    f"python manage.py runserver {PORT}": f"development server at {ADDRESS}",
    WORKER: "Dear ada@example.com, thank you for order 1.",
}


def _expect(text: str) -> Callable[[Reader], None]:
    def check(reader: Reader) -> None:
        assert re.search(text, reader.printed[-1]), reader.printed[-1]

    return check


SUITE_FILES = {
    "with_pytest.py": "shop/test_with_pytest.py",
    "with_unittest.py": "shop/test_with_unittest.py",
    "with_serialized_rollback.py": "shop/serialized_rollback.py",  # a name that neither runner finds by itself
}
# With the tutorial's own test, which Django's runner has run alone already; it runs none but those for unittest.
IN_ALL, FOR_UNITTEST = 21, 6
SUITE_RUNS = [
    ("python -m pytest", IN_ALL),
    ("python -m pytest --nomigrations", IN_ALL),
    ("python -m pytest -n 2 --reuse-db", IN_ALL),
    ("python -m pytest -n 2 --reuse-db", IN_ALL),
    ("python -m pytest --create-db shop/serialized_rollback.py", 4),
    ("python manage.py test --noinput --parallel 2", FOR_UNITTEST),
    ("python manage.py test --noinput shop.serialized_rollback", 2),
]
TESTED_WITH = ("pytest", "pytest-django", "pytest-xdist", "time-machine")
PYTEST_INI = """
[pytest]
DJANGO_SETTINGS_MODULE = mysite.settings
python_files = test*.py
addopts = -q --strict-markers
filterwarnings = error
"""
EXPECTED = {
    'psql -d postgres -c "SELECT version()"': _expect("PostgreSQL"),
    f'curl "{ADDRESS}/order/?email=ada@example.com"': _expect(r"Order 1 is placed\."),
    "python manage.py proletarian_status": _expect(r"proletarian/default +1 "),
}


def run_a_suite_with_every_testing_tool(reader: Reader) -> None:
    reader.type(f"pip install {' '.join(TESTED_WITH)}")
    reader.write("pytest.ini", PYTEST_INI, at_its_end=False)
    for file, copy in SUITE_FILES.items():
        reader.write(copy, (SUITE / file).read_text(), at_its_end=False)
    for command, tests in SUITE_RUNS:
        reader.type(command)
        assert re.search(rf"(?m)^(=* ?{tests} passed in|Ran {tests} tests )", reader.printed[-1]), reader.printed[-1]


def test_the_suite_has_every_testing_tool() -> None:
    texts = [(SUITE / file).read_text() for file in SUITE_FILES]
    tools = {*testing.__all__, "proletarian_jobs", "proletarian_worker", "IMMEDIATE"}
    methods = {name for name in vars(testing.ProletarianTestMixin) if not name.startswith(("_", "setUp"))}
    assert {tool for tool in tools if tool not in "".join(texts)} == set()
    assert {method for method in methods if f"self.{method}(" not in "".join(texts)} == set()


@contextmanager
def browser() -> Iterator[Callable[[str], str]]:
    """What looks at pages of the admin, logged in as the tutorial says."""
    jar = CookieJar()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar))

    def look(path: str, data: bytes | None = None) -> str:
        with opener.open(f"{ADDRESS}{path}", data, timeout=60) as response:
            text: str = response.read().decode()
            return text

    look("/admin/login/")
    token = next(cookie.value for cookie in jar if cookie.name == "csrftoken")
    login = {"username": "admin", "password": "tutorial", "csrfmiddlewaretoken": token, "next": "/admin/"}
    look("/admin/login/", urllib.parse.urlencode(login).encode())
    yield look
