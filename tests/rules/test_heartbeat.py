"""When a worker counts as healthy, and the file that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from django_proletarian import heartbeat
from django_proletarian.heartbeat import Heartbeat, Pulse

NOW = 1_000_000.0


def beat(*polled_at: float | None, written_at: float = NOW) -> Heartbeat:
    pulses = tuple(Pulse(pid=number, polled_at=at) for number, at in enumerate(polled_at, 101))
    return Heartbeat(pid=100, written_at=written_at, processes=pulses)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param(beat(NOW - 1), None, id="polled a second ago"),
        pytest.param(beat(NOW - 30), None, id="polled just in time"),
        pytest.param(beat(NOW - 31), "Worker process 1 (pid 101) last polled with success 31 s ago", id="too late"),
        pytest.param(beat(NOW, NOW - 99), "Worker process 2 (pid 102) last polled", id="one of two is too late"),
        pytest.param(beat(NOW, None), "Worker process 2 (pid 102) has not polled yet", id="one has only just begun"),
        pytest.param(beat(NOW - 40, written_at=NOW - 40), "(pid 100) last wrote its heartbeat 40 s ago", id="killed"),
        pytest.param(beat(NOW + 5, written_at=NOW + 5), None, id="the clock was set back"),
        pytest.param(beat(), None, id="all processes have done what there was"),
    ],
)
def test_a_worker_is_healthy_if_each_of_its_processes_polled_lately(given: Heartbeat, problem: str | None) -> None:
    found = heartbeat.problem(given, NOW, max_age=30)
    assert found is None if problem is None else found is not None and problem in found


def test_a_process_that_is_being_started_again_is_told_from_one_that_runs() -> None:
    found = heartbeat.problem(
        Heartbeat(pid=1, written_at=NOW, processes=(Pulse(pid=None, polled_at=NOW - 60),)), NOW, max_age=30
    )
    assert found is not None
    assert "Worker process 1 (not running)" in found


def test_what_is_written_is_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "worker.heartbeat"
    for written in (beat(NOW, None), beat(NOW)):
        heartbeat.write(path, written)
        assert heartbeat.read(path) == written
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_can_not_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "worker.heartbeat"
    path.mkdir()
    with pytest.raises(OSError, match=r"worker\.heartbeat"):
        heartbeat.write(path, beat(NOW))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid": 1, "written_at": 1, "processes": [{}]}'])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "something"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a worker's heartbeat"):
        heartbeat.read(path)


def test_two_projects_of_one_user_have_two_files() -> None:
    assert heartbeat.default_path(["shop"]) == heartbeat.default_path(["shop"])
    assert heartbeat.default_path(["shop"]) != heartbeat.default_path(["mail"])
