"""The shop as processes: database server, web server and workers, started for `demo` and `serve` and stopped with them.

Each child has a session of its own, so that Ctrl-C reaches the program that started it, which stops its children one by
one, and not all of them at once.
"""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn, Self, TypeVar

T = TypeVar("T")
MANAGE = Path(__file__).with_name("manage.py")
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
COLOURS = {"web": "34", "worker": "32"} if sys.stdout.isatty() else {}
# Shown without what only a machine reads: whose line it is stands before it, and eight digits tell a job from another.
LESS = (
    (re.compile(r" (queue_worker_id|worker_thread_id)=\S+"), ""),
    (re.compile(r"job_id=(\w{8})[-\w]*"), r"job_id=\1"),
)


class Failed(Exception):
    """Something is not as it must be; the message is for the person who looks on."""


def say(text: str) -> None:
    print(text, flush=True)


def heading(text: str) -> None:
    say(f"\n── {text} ──\n")


def eventually(what: str, condition: Callable[[], T | None], seconds: float = 60) -> T:
    """Wait until `condition` gives a true value, and return it. Raises Failed if it has not after `seconds`."""
    deadline = time.monotonic() + seconds
    never = threading.Event()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Failed(f"Not within {seconds:.0f} seconds: {what}.")
        never.wait(0.05)
    return value


class Process:
    """One `manage.py …`, stopped when its `with` block ends. Lines that `shows` likes are printed under its name."""

    def __init__(self, name: str, *arguments: str, shows: Callable[[str], bool] = bool) -> None:
        self.name = name
        self.lines: list[str] = []  # written by the reading thread, read by the others
        self._shows = shows
        self._process = subprocess.Popen(
            [sys.executable, str(MANAGE), *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": "1", "DJANGO_RUNSERVER_HIDE_WARNING": "true"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"output of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        colour = COLOURS.get(self.name.split()[0])
        start, end = (f"\033[{colour}m", "\033[0m") if colour else ("", "")
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            if self._shows(self.lines[-1]):
                say(f"{start}{self.name:>8} │{end} {shortened(self.lines[-1])}")

    def ended(self) -> bool:
        return self._process.poll() is not None

    def line_with(self, *texts: str) -> str | None:
        """The first line so far that has all of `texts`."""
        return next((line for line in self.lines if all(text in line for text in texts)), None)

    def stop(self, seconds: float = 20) -> int:
        """Ask it to stop, wait until it has, and return its exit code. Kills it after `seconds`."""
        if not self.ended():
            self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            say(f"{self.name} does not stop, and is killed.")
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(5)
        return self._process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def no_traceback(line: str) -> bool:
    """Of a traceback this leaves its last line, the exception."""
    return bool(line) and not line.startswith(("Traceback ", " "))


def shortened(line: str) -> str:
    for pattern, replacement in LESS:
        line = pattern.sub(replacement, line)
    return line


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and a closed terminal into SystemExit, once; whoever asks again waits for the end."""

    def leave(signum: int, frame: FrameType | None) -> NoReturn:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + signum)

    for number in STOPPING:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Let signals wait for the end of the block, where something half done would be left behind."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda signum, frame: came.append(signum)) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def database(directory: Path | None) -> Iterator[str]:
    """A database for this process and its children; yields what to tell a person about it.

    DATABASE_URL names it, else a server is started here, with its data below `directory` (None for one that is made for
    the purpose, and removed), and stopped at the end.
    """
    if "DATABASE_URL" in os.environ:
        yield "the one of DATABASE_URL"
        return
    from example_project import embedded  # noqa: PLC0415 # with a server of one's own the package is not needed

    with tempfile.TemporaryDirectory(prefix="proletarian-") as temporary, ExitStack() as started:
        with signals_held_back():
            server = embedded.start(directory or Path(temporary), until_exit=False)
            started.callback(embedded.stop, server)
        os.environ["DATABASE_URL"] = server.get_uri()
        yield f"embedded, version {(server.pgdata / 'PG_VERSION').read_text().strip()}"


@contextmanager
def web_server(port: int, shows: Callable[[str], bool] = bool) -> Iterator[tuple[Process, str]]:
    """The shop's web server, ready; yields the process and its address."""
    url = f"http://127.0.0.1:{port}"
    if is_taken(port):
        raise Failed(f"Port {port} is taken. Choose another one: make serve PORT={port + 1}")
    with Process("web", "runserver", "--noreload", f"127.0.0.1:{port}", shows=shows) as web:

        def answers() -> bool:
            if web.ended():
                raise Failed("The web server ended.")
            try:
                urllib.request.urlopen(f"{url}/", timeout=10).close()
            except urllib.error.HTTPError:
                raise
            except OSError:
                return False
            return True

        eventually("the web server answers", answers)
        yield web, url


def ended_by_itself(*processes: Process) -> Process:
    """Wait until one of `processes` has ended, and return it."""
    return eventually("a process ends", lambda: next(filter(Process.ended, processes), None), seconds=math.inf)


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
