"""Whose turn it is to poll, and how many jobs may still be taken: without a database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from django_proletarian.polling import JobBudget, PollingTurn

FOR_EVER = 1000.0  # seconds: longer than any test may take


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def ends(thread: threading.Thread) -> bool:
    thread.join(20)
    return not thread.is_alive()


def wait(turn: PollingTurn, seconds: float) -> bool:
    """What an idle thread does; whether it may poll then."""
    if not turn.take():
        return False
    turn.sleep(seconds)
    turn.wake()
    return True


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


def test_the_first_thread_polls_at_once(stop: threading.Event) -> None:
    turn = PollingTurn(stop, 4)
    assert ends(in_thread(lambda: wait(turn, FOR_EVER)))


def test_a_thread_that_starts_after_the_first_job_was_found_polls_at_once(stop: threading.Event) -> None:
    turn = PollingTurn(stop, 2)
    wait(turn, FOR_EVER)
    turn.hand_on()
    assert ends(in_thread(lambda: wait(turn, FOR_EVER)))


def test_a_thread_that_waits_for_its_turn_polls_when_the_poller_finds_a_job(stop: threading.Event) -> None:
    turn = PollingTurn(stop, 2)
    wait(turn, FOR_EVER)
    other = in_thread(lambda: wait(turn, FOR_EVER))
    turn.hand_on()
    assert ends(other)


def test_a_thread_alone_waits_for_the_interval_after_a_job(stop: threading.Event) -> None:
    turn = PollingTurn(stop, 1)
    wait(turn, FOR_EVER)
    turn.hand_on()
    before = time.monotonic()
    wait(turn, 0.05)
    assert time.monotonic() - before >= 0.05


def test_a_thread_that_can_not_poll_leaves_the_turn_to_another(stop: threading.Event) -> None:
    turn = PollingTurn(stop, 2)
    wait(turn, FOR_EVER)
    other = in_thread(lambda: wait(turn, 0.01))
    turn.leave()
    assert ends(other)


def test_a_stop_wakes_all(stop: threading.Event) -> None:
    turn = PollingTurn(stop, 5)
    wait(turn, FOR_EVER)
    answers: list[bool] = []
    threads = [in_thread(lambda: answers.append(wait(turn, FOR_EVER))) for _ in range(4)]
    stop.set()
    turn.hand_on()
    assert all(ends(thread) for thread in threads)
    assert answers == [False] * 4


def test_a_thread_that_can_not_poll_is_not_taken_for_idle(stop: threading.Event) -> None:
    turn = PollingTurn(stop, 1)
    turn.take()
    turn.leave()
    assert not turn.hand_on()


def test_a_hurry_while_the_poller_looks_around_is_not_lost(stop: threading.Event) -> None:
    turn = PollingTurn(stop, 1)
    wait(turn, FOR_EVER)
    turn.take()
    turn.hurry()
    assert ends(in_thread(lambda: turn.sleep(FOR_EVER)))


def test_sleep_tells_whether_there_was_a_hurry(stop: threading.Event) -> None:
    turn = PollingTurn(stop, 1)
    turn.take()
    assert [turn.sleep(0), turn.sleep(0)] == [True, False]


def test_a_budget_is_spent_when_all_is_taken_and_none_is_given_back() -> None:
    budget = JobBudget(2)
    assert [budget.take(), budget.take(), budget.take()] == [1, 1, 0]
    assert budget.spent
    budget.give_back(1)
    assert not budget.spent
    assert budget.take()


def test_a_budget_gives_as_many_as_are_left() -> None:
    budget = JobBudget(5)
    assert [budget.take(3), budget.take(3), budget.take(3)] == [3, 2, 0]


def test_a_budget_without_end_is_never_spent() -> None:
    budget = JobBudget(None)
    assert all(budget.take() for _ in range(1000))
    assert not budget.spent
