"""A call that runs for longer than its limit is interrupted, then told of, and nothing else ever is."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_proletarian import InvalidHandler, JobTimeout, job_handler, watcher
from django_proletarian.interrupting import ThreadCall
from django_proletarian.time_limits import TimeLimit, as_seconds
from tests.conftest import eventually


class Told:
    """What a limit tells: when it is, that it is over, that it is ignored."""

    def __init__(self) -> None:
        self.noted: list[float] = []
        self.ignored = threading.Event()

    def limit(self, seconds: float, grace: float = 60.0) -> TimeLimit:
        return TimeLimit(seconds=seconds, grace=grace, note=self.noted.append, on_ignored=self.ignored.set)


def run(limit: TimeLimit, function: Callable[[], object]) -> BaseException | None:
    """What came out of the function, called under the limit."""
    call = ThreadCall()
    try:
        with limit.around(call):
            call.run(function)
    except BaseException as error:
        return error
    return None


def runs_on() -> None:
    for _ in range(10**12):
        pass


def test_a_call_that_runs_on_is_interrupted_when_its_time_is_up() -> None:
    told = Told()
    began = time.monotonic()
    assert isinstance(run(told.limit(0.05), runs_on), JobTimeout)
    assert time.monotonic() - began >= 0.05
    assert [at > began for at in told.noted] == [True, False]
    assert told.noted[-1] == 0
    assert not told.ignored.is_set()


def test_a_call_that_ends_in_time_hears_nothing() -> None:
    assert run(Told().limit(30), lambda: None) is None


def test_a_shorter_limit_is_not_late_because_of_a_longer_one() -> None:
    outcomes: list[BaseException | None] = []
    go = threading.Event()
    long = threading.Thread(target=lambda: outcomes.append(run(Told().limit(600), lambda: go.wait(30))))
    long.start()
    began = time.monotonic()
    assert isinstance(run(Told().limit(0.05), runs_on), JobTimeout)
    assert time.monotonic() - began < 20
    go.set()
    long.join(20)
    assert outcomes == [None]


def test_a_call_that_ignores_its_interrupt_is_told_of_once_after_the_grace_and_not_interrupted_again() -> None:
    told = Told()
    caught: list[BaseException] = []

    def stubborn() -> None:
        try:
            runs_on()
        except JobTimeout as error:
            caught.append(error)
        assert told.ignored.wait(20)

    assert run(told.limit(0.01, grace=0.05), stubborn) is None
    assert len(caught) == 1


def test_the_thread_is_there_only_while_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "IDLE", 0.01)
    monkeypatch.setattr(watcher, "_watcher", watcher._Watcher())
    for _ in range(2):
        assert isinstance(run(Told().limit(0.01), runs_on), JobTimeout)
        eventually(lambda: watcher._watcher._thread is None)


def test_of_ten_thousand_calls_that_end_as_their_time_is_up_none_is_interrupted_later() -> None:
    outcomes: set[type[BaseException] | None] = set()
    limit = Told().limit(0.0005)
    try:
        for number in range(10_000):
            # From well within the limit to just over it.
            until = time.monotonic() + 0.0001 * (number % 7)

            def spins(until: float = until) -> None:
                while time.monotonic() < until:
                    pass

            outcome = run(limit, spins)
            outcomes.add(None if outcome is None else type(outcome))
            for _ in range(20):  # what would be hit
                len(())
    except JobTimeout:
        pytest.fail("raised after the call had ended")
    assert outcomes == {None, JobTimeout}


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, None), (5, 5.0), (0.5, 0.5), (timedelta(minutes=2), 120.0), (math.inf, math.inf), (1e12, math.inf)],
)
def test_a_limit_is_a_timedelta_or_seconds(given: Any, seconds: float | None) -> None:
    assert as_seconds(given) == seconds


@pytest.mark.parametrize("given", [0, -1, timedelta(0), "5", True, math.nan])
def test_a_limit_that_is_none_is_refused_where_the_handler_is_declared(given: Any) -> None:
    with pytest.raises(InvalidHandler, match=r"time_limit is .*above zero.*timedelta\(minutes=5\)"):
        job_handler("tests/limited", time_limit=given)(lambda payload: None)
