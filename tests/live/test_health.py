"""What a worker shows of its health: to `proletarian_health`, and to systemd."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from django_proletarian import enqueue, health, heartbeat
from tests.conftest import eventually
from tests.live.processes import ROOT, WorkerProcess

Spawn = Callable[..., WorkerProcess]


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that a service manager listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(f"\0proletarian-tests-{os.getpid()}")
        server.settimeout(60)
        yield server


def test_a_worker_shows_its_health_until_it_ends(committed: None, spawn: Spawn, systemd: socket.socket) -> None:
    worker = spawn("--processes", "2", NOTIFY_SOCKET=f"@proletarian-tests-{os.getpid()}", WATCHDOG_USEC="4000000")
    assert systemd.recv(100) == b"READY=1"
    assert health.check(worker.heartbeat, max_age=10) is None
    said = StringIO()
    call_command("proletarian_health", "--heartbeat-file", str(worker.heartbeat), stdout=said)
    assert said.getvalue() == "The worker is healthy.\n"
    assert [systemd.recv(100), systemd.recv(100)] == [b"WATCHDOG=1", b"WATCHDOG=1"]

    # One process of two hangs.
    os.kill(worker.children[0], signal.SIGSTOP)
    stuck = f"Worker process 1 (pid {worker.children[0]}) last polled with success"
    eventually(lambda: stuck in (health.check(worker.heartbeat, max_age=3) or ""))
    with pytest.raises(CommandError, match="3 s are allowed"):
        call_command("proletarian_health", "--heartbeat-file", str(worker.heartbeat), "--max-age", "3")
    os.kill(worker.children[0], signal.SIGCONT)
    eventually(lambda: health.check(worker.heartbeat, max_age=3) is None)

    worker.send(signal.SIGTERM)
    assert eventually(lambda: systemd.recv(100) == b"STOPPING=1")
    assert worker.ends() == 0
    assert "there is no" in str(health.check(worker.heartbeat))


def test_a_worker_whose_threads_all_run_long_jobs_is_healthy_and_one_that_is_killed_is_not(
    committed: None, spawn: Spawn, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    enqueue("tests/wait-for-file", {"started": str(started), "go": str(tmp_path / "go")})
    worker = spawn()
    eventually(started.exists)
    begun = started.stat().st_mtime

    eventually(lambda: (heartbeat.read(worker.heartbeat).processes[0].polled_at or 0) > begun + 2)
    assert health.check(worker.heartbeat, max_age=10) is None

    worker.send(signal.SIGKILL)
    worker.ends()
    eventually(lambda: "last wrote its heartbeat" in (health.check(worker.heartbeat, max_age=1) or ""))


def test_a_worker_whose_database_is_away_is_not_healthy_and_the_command_asks_no_database(spawn: Spawn) -> None:
    nowhere = "postgresql://postgres@127.0.0.1:1/postgres"
    worker = spawn(url=nowhere)
    worker.says("sql-transient-exception")
    eventually(worker.heartbeat.exists)
    asked = subprocess.run(
        [sys.executable, "-m", "django", "proletarian_health", "--heartbeat-file", str(worker.heartbeat)],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": nowhere, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert asked.returncode == 1
    assert "CommandError: Worker process 1" in asked.stderr
    assert "has not polled yet." in asked.stderr
    assert worker.stop() == 0


def test_the_plain_commands_of_a_project_find_the_same_file(settings: object) -> None:
    from django.test import override_settings

    from django_proletarian import conf

    own = conf.heartbeat_path()
    assert own is not None
    assert own == conf.heartbeat_path()
    with override_settings(PROLETARIAN={"HEARTBEAT_FILE": "/run/shop/heartbeat"}):
        assert conf.heartbeat_path() == Path("/run/shop/heartbeat")
        assert conf.heartbeat_path("/run/other") == Path("/run/other")
    with override_settings(PROLETARIAN={"HEARTBEAT_FILE": ""}):
        assert conf.heartbeat_path() is None
        assert "HEARTBEAT_FILE is empty" in str(health.check())
    with override_settings(PROLETARIAN={"JOB_TABLE": "shop.job"}):
        assert conf.heartbeat_path() != own
