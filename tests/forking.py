"""Python processes forked from one that has imported Django already, which is most of what starting one takes.

For processes that run to their end. Those that tests signal or kill start from nothing, as in production.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any


def run_forked(arguments: list[str], directory: Path, environment: dict[str, str], seconds: float) -> tuple[int, str]:
    """Run `python -W error` with `arguments`, which begin with -c or -m; return the exit code and what it printed."""
    return _server().run(arguments, directory, environment, seconds)


class _Server:
    """The process that forks, and whose standard input and output are asked and answered, one line for each process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.forking"],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._close)

    def run(
        self, arguments: list[str], directory: Path, environment: dict[str, str], seconds: float
    ) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock, tempfile.NamedTemporaryFile("r") as output:
            request = {
                "arguments": arguments,
                "directory": str(directory),
                "environment": environment,
                "output": output.name,
            }
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], seconds)[0]:
                raise AssertionError(f"{arguments} has not ended within {seconds} seconds:\n{output.read()}")
            return int(self._process.stdout.readline()), output.read()

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@cache
def _server() -> _Server:
    return _Server()


def _serve() -> dict[str, Any] | None:
    """Answer requests until there are no more; in a forked process return what it is to do."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            return dict(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


def _become(request: dict[str, Any]) -> None:
    """Be the process that Python would have started."""
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:0] = [request["directory"], *os.environ["PYTHONPATH"].split(os.pathsep)]
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["output"], os.O_WRONLY)
    for new, old in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(new, old)
    kind, what, *arguments = request["arguments"]
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    import dj_database_url  # noqa: F401 # these are what the processes share
    import django.core.management.commands.migrate
    import django.db.backends.postgresql.base
    import django.db.models
    import django.test  # noqa: F401

    asked = _serve()
    if asked is not None:
        _become(asked)
