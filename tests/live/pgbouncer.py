"""A PgBouncer of a test's own, in front of the tests' server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psycopg
from django.db import connection

from tests.conftest import eventually
from tests.postgres import _unprivileged_user, free_port

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class PgBouncer:
    """Debian's `pgbouncer`, on a free port of 127.0.0.1, with `pool_mode` transaction or session.

    `given` are settings that a test is about; where it listens, and who may come in, stays as it is.
    """

    def __init__(self, pool_mode: str, given: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="proletarian-pgbouncer-"))
        behind = {name.lower(): connection.settings_dict[name] for name in ("HOST", "PORT", "USER", "PASSWORD")}
        settings = {
            # Fewer than two workers and their handlers have, so that transactions wait, and move between connections.
            "default_pool_size": 10,
            **(given or {}),
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": pool_mode,
            "logfile": self._directory / "log",
        }
        configuration = self._directory / "pgbouncer.ini"
        configuration.write_text(
            "[databases]\n* = "
            + " ".join(f"{name}={value}" for name, value in behind.items() if value)
            + "\n[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        as_user = []
        if os.geteuid() == 0:
            user = _unprivileged_user()
            for path in (self._directory, configuration):
                shutil.chown(path, user)
            as_user = ["-u", user]
        assert PROGRAM is not None
        self._command = [PROGRAM, "-q", *as_user, str(configuration)]
        self.start()
        eventually(self._answers)

    def start(self) -> None:
        """Start it, and don't wait."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it, and with it its connections to the clients and to the server."""
        self._process.kill()
        self._process.wait()

    @property
    def url(self) -> str:
        """The test database, by way of the pooler."""
        return (
            f"postgresql://{connection.settings_dict['USER']}@127.0.0.1:{self.port}/{connection.settings_dict['NAME']}"
        )

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._directory / "log").read_text()
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def close(self) -> None:
        """End it, and remove what it had."""
        self.kill()
        shutil.rmtree(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
