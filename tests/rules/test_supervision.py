"""The supervisor's rules: when a process is started again, who runs how many jobs, what an end is called."""

from __future__ import annotations

from multiprocessing import Pipe

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_proletarian.children import how_it_ended, pause_after
from django_proletarian.slots import Slots
from django_proletarian.supervisor import _shares
from django_proletarian.worker_process import Assignment, ExitCode, WorkerProcess
from django_proletarian.worker_row import Identity


@pytest.mark.parametrize(
    ("deaths", "seconds"), [(1, 0), (2, 0.1), (3, 0.2), (4, 0.4), (10, 25.6), (11, 30), (1_000_000, 30)]
)
def test_the_first_death_costs_no_pause_and_each_further_one_twice_the_last(deaths: int, seconds: float) -> None:
    assert pause_after(deaths) == pytest.approx(seconds)


@given(max_jobs=st.integers(1, 1000), processes=st.integers(1, 64))
def test_processes_run_max_jobs_together_and_about_as_many_each(max_jobs: int, processes: int) -> None:
    shares = [share for share in _shares(max_jobs, processes) if share is not None]
    assert sum(shares) == max_jobs
    assert max(shares) - min(shares) <= 1
    assert min(shares) >= 1
    assert len(shares) == min(max_jobs, processes)


def test_without_max_jobs_no_process_has_a_limit() -> None:
    assert _shares(None, 3) == [None, None, None]


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (-9, "was killed by SIGKILL"),
        (-11, "was killed by SIGSEGV"),
        (-250, "was killed by signal 250"),
        (0, "exited with status 0"),
        (1, "exited with status 1"),
        (ExitCode.REPLACE, "ended, to be replaced"),
    ],
)
def test_an_end_is_told_by_its_signal_or_status(code: int, how: str) -> None:
    assert how_it_ended(code) == how


def test_what_is_settled_when_the_supervisor_has_just_died_is_no_error() -> None:
    assignment = Assignment(options={}, identity=Identity(), threads=1, verbosity=0, max_memory=None, crashes=())
    ours, theirs = Pipe()
    process = WorkerProcess(assignment, Slots.private(1), theirs)
    process.tell_supervisor("it is heard")
    assert ours.recv() == "it is heard"
    ours.close()
    process.tell_supervisor("nobody hears it")
    theirs.close()
