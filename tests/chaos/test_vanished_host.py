"""A host that vanishes without closing its sockets: a power cut, or a partition. Two network namespaces, a cut link.

It takes most of a minute, since time itself is the subject, and needs root: run it with `pytest -m slow`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.live.processes import WorkerProcess, archived, claims_of, insert_jobs, migrate, sql, unlocked_jobs
from tests.postgres import Postgres

SERVER, OTHER = "10.213.77.1", "10.213.77.2"


class Link:
    """A cable between this host and another one, which is a network namespace."""

    def __init__(self) -> None:
        self.namespace = f"proletarian-{os.getpid()}"
        self._here, self._there = f"prol{os.getpid()}a"[-15:], f"prol{os.getpid()}b"[-15:]

    def lay(self) -> None:
        ip("netns", "add", self.namespace)
        ip("link", "add", self._here, "type", "veth", "peer", "name", self._there, "netns", self.namespace)
        ip("address", "add", f"{SERVER}/30", "dev", self._here)
        ip("-n", self.namespace, "address", "add", f"{OTHER}/30", "dev", self._there)
        ip("link", "set", self._here, "up")
        self.mend()

    def cut(self) -> None:
        """From now on nothing comes through, and nobody is told."""
        ip("-n", self.namespace, "link", "set", self._there, "down")

    def mend(self) -> None:
        ip("-n", self.namespace, "link", "set", self._there, "up")

    def remove(self) -> None:
        subprocess.run(["ip", "link", "delete", self._here], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False, capture_output=True)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def link() -> Iterator[Link]:
    if not sys.platform.startswith("linux") or shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces take Linux, the program ip, and root")
    link = Link()
    try:
        link.lay()
    except subprocess.CalledProcessError as error:
        link.remove()
        pytest.skip(f"this machine makes no network namespaces: {error.stderr.strip()}")
    yield link
    link.remove()


@pytest.fixture
def server(link: Link) -> Iterator[Postgres]:
    """A server that the other host reaches too."""
    with Postgres(listen_addresses="*") as server:
        with (server.data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {OTHER}/32 trust\n")
        migrate(server.url)
        assert sql(server.url, "SELECT pg_reload_conf()") == [(True,)]
        yield server


@pytest.fixture
def spawn(tmp_path: Path, link: Link) -> Iterator[Callable[..., WorkerProcess]]:
    """Start a worker process, here or `on_the_other_host`; killed at the end."""
    processes: list[WorkerProcess] = []

    def spawn(name: str, server: Postgres, *, on_the_other_host: bool = False) -> WorkerProcess:
        url, within = server.url, ()
        if on_the_other_host:
            url, within = url.replace("127.0.0.1", SERVER), ("ip", "netns", "exec", link.namespace)
        worker = WorkerProcess(tmp_path / f"{name}.log", url, "--worker-id", name, within=within)
        processes.append(worker)
        return worker

    yield spawn
    for process in processes:
        process.close()


@pytest.mark.slow
def test_a_host_that_vanishes_frees_its_jobs_within_a_minute(
    link: Link, server: Postgres, spawn: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    insert_jobs(server.url, "tests/wait-for-file", [f'["^ ","started","{started}","go","{go}"]'])
    busy = spawn("busy", server, on_the_other_host=True)
    eventually(started.exists)
    idle = spawn("idle", server, on_the_other_host=True)
    eventually(lambda: claims_of(server.url, "idle"))
    heir = spawn("heir", server)
    eventually(lambda: claims_of(server.url, "heir"))
    assert unlocked_jobs(server.url) == []
    started.unlink()

    link.cut()
    cut_at = time.monotonic()

    # The other host's clocks run on, and its worker still believes that it has the job.
    eventually(started.exists, seconds=90)
    freed_after = time.monotonic() - cut_at
    print(f"The job was free {freed_after:.1f} s after the link was cut.")
    assert freed_after < 60
    # The worker that polled noticed too, and so did the server, of its connections.
    eventually(lambda: "sql-transient-exception" in idle.log, seconds=60 - freed_after)
    assert claims_of(server.url, "busy") == []
    go.touch()
    eventually(lambda: archived(server.url))

    link.mend()
    # What the busy worker has to say comes too late.
    busy.says("sql-transient-exception")
    assert archived(server.url) == [(":tests/wait-for-file", ":success", 1)]
    assert heir.stop() == 0
    insert_jobs(server.url, "tests/append", ["1"])
    eventually(lambda: len(archived(server.url)) == 2, seconds=60)
    assert [busy.stop(), idle.stop()] == [0, 0]
