"""An exception that is raised into a call from another thread arrives while the call runs, or not at all."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from queue import SimpleQueue
from types import FrameType
from typing import Any

import pytest

from django_proletarian import JobInterrupted, interrupting
from django_proletarian.interrupting import Stop, ThreadCall


class Late(BaseException):
    """What is raised into calls."""


def in_a_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def returns() -> None:
    for _ in range(2):
        len(())


def fails() -> None:
    raise ValueError("the function's own")


def run(call: ThreadCall, function: Callable[[], object]) -> BaseException | None:
    """What came out."""
    try:
        call.run(function)
    except BaseException as error:
        return error
    return None


def test_a_call_that_nobody_interrupts_returns_or_raises_its_own() -> None:
    assert run(ThreadCall(), returns) is None
    assert isinstance(run(ThreadCall(), fails), ValueError)


def test_a_call_is_interrupted_where_it_is() -> None:
    call = ThreadCall()
    places = []

    def waits() -> None:
        places.append("begun")
        in_a_thread(lambda: call.interrupt(Late))
        places.append("on")

    assert isinstance(run(call, waits), Late)
    assert places == ["begun"]


def test_a_call_that_was_interrupted_before_it_began_is_not_begun() -> None:
    call = ThreadCall()
    call.interrupt(Late)
    places: list[str] = []
    assert isinstance(run(call, lambda: places.append("begun")), Late)
    assert places == []


def test_a_call_may_catch_its_interrupt_which_does_not_come_again() -> None:
    call = ThreadCall()

    def catches() -> None:
        try:
            in_a_thread(lambda: call.interrupt(Late))
        except Late:
            in_a_thread(lambda: call.interrupt(Late))
            returns()

    assert run(call, catches) is None


def test_a_call_that_has_ended_is_not_interrupted() -> None:
    call = ThreadCall()
    assert run(call, returns) is None
    call.interrupt(Late)
    returns()


def test_a_call_keeps_nothing_alive() -> None:
    call = ThreadCall()
    error = run(call, fails)
    assert error is not None
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    assert not any(value is error for frame in frames[1:] for value in frame.f_locals.values())


@pytest.fixture
def no_tracing() -> Iterator[None]:
    """Whatever traces the tests, such as a debugger, sees nothing of this one, which traces by itself."""
    before = sys.gettrace()
    yield
    sys.settrace(before)


class AtOpcode:
    """Does what `call.interrupt(Late)` does, before the opcode of this number, counted through the function and ours.

    By hand, since all Python that a tracer calls would get the exception itself; a subscript that calls C does not.
    """

    def __init__(self, call: ThreadCall, number: int) -> None:
        self._call = call
        self._left = number
        self._raise_here = type(
            "", (), {"__getitem__": staticmethod(partial(interrupting._set_async_exception, threading.get_ident()))}
        )()
        self.was_reached = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in (interrupting.__file__, __file__):
            return None
        frame.f_trace_opcodes = True
        if event != "opcode":
            return self
        self._left -= 1
        if self._left >= 0:
            return self
        sys.settrace(None)
        self.was_reached = True
        if self._call._lock.locked() or self._call._has_ended:
            return None  # `interrupt` would wait, or do nothing
        self._call._error = Late
        if self._call._thread is not None:
            self._raise_here[Late]
        return None


@pytest.mark.usefixtures("no_tracing")
@pytest.mark.parametrize("function", [returns, fails])
def test_an_interrupt_at_any_bytecode_comes_out_of_the_call_or_not_at_all(function: Callable[[], None]) -> None:
    # Python 3.12 looks for this when tracing begins.
    sys._getframe().f_trace_opcodes = True
    outcomes = []
    for number in count():
        call = ThreadCall()
        tracer = AtOpcode(call, number)
        outcome = None
        try:
            sys.settrace(tracer)
            # Not by `run`, which would count as code of the call.
            call.run(function)
        except (ValueError, Late) as error:
            outcome = error
        finally:
            sys.settrace(None)
        # Would raise what is left over.
        returns()
        assert call._has_ended or isinstance(outcome, Late)
        assert not call._lock.locked()
        if not tracer.was_reached:
            break
        outcomes.append(type(outcome))
    own = type(None) if function is returns else ValueError
    assert set(outcomes) == {Late, own}
    # The last ones come too late.
    assert outcomes[0] is Late
    assert outcomes[-1] is own


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Nobody's callbacks of the collector run in between, such as Hypothesis's, in which Python drops exceptions."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("quick_switches", "no_garbage_collection")
def test_no_interrupt_of_thousands_that_come_as_a_call_ends_reaches_what_runs_next() -> None:
    calls: list[ThreadCall] = [ThreadCall()]  # the last one runs
    outcomes: list[BaseException | None] = []
    stray: list[BaseException] = []
    enough = threading.Event()
    deadline = time.monotonic() + 60

    def interrupts() -> None:
        while not enough.is_set():
            calls[-1].interrupt(Late)

    raiser = threading.Thread(target=interrupts)
    raiser.start()
    try:
        for number in count():
            # On a busy machine the other thread may not have had its turn yet.
            if number >= 5000 and (Late in map(type, outcomes) or time.monotonic() > deadline):
                break
            call = ThreadCall()
            calls[:] = [call]
            length = number % 20

            def function(length: int = length) -> None:
                for _ in range(length):
                    len(())

            outcomes.append(run(call, function))
            for _ in range(20):
                len(())
    except Late as error:
        stray.append(error)
    finally:
        enough.set()  # whatever ends the test: pytest would wait for the thread for ever
    raiser.join(20)
    assert stray == []
    assert {type(outcome) for outcome in outcomes} == {Late, type(None)}


# -- Stops -----------------------------------------------------------------------------------------------------------


def test_a_stop_interrupts_the_calls_that_run_and_no_others() -> None:
    stop = Stop()
    # Made in C: what is made in Python may be interrupted while it holds a lock, for which the others would wait.
    running: SimpleQueue[None] = SimpleQueue()
    asked: SimpleQueue[bool] = SimpleQueue()
    others = ThreadCall()
    calls = [ThreadCall() for _ in range(3)]
    outcomes: list[BaseException | None] = []

    def waits() -> None:
        running.put(None)
        assert asked.get(timeout=20)
        returns()

    def work(call: ThreadCall) -> None:
        with stop.interrupting(call):
            outcomes.append(run(call, waits))

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    with stop.interrupting(others):
        assert run(others, returns) is None
    for _ in calls:
        running.get(timeout=20)
    stop.set()
    stop.interrupt_handlers()
    for _ in calls:
        asked.put(True)
    for thread in threads:
        thread.join(20)
    assert [type(outcome) for outcome in outcomes] == [JobInterrupted] * 3
    returns()


def test_a_call_that_begins_after_the_stop_is_interrupted_at_once() -> None:
    stop, call = Stop(), ThreadCall()
    stop.set()
    stop.interrupt_handlers()
    with stop.interrupting(call):
        assert isinstance(run(call, returns), JobInterrupted)


def test_a_call_that_stops_itself_is_interrupted_after_all_others() -> None:
    stop = Stop()
    told: list[str] = []

    class Other:
        def interrupt(self, error: type[BaseException]) -> None:
            told.append(error.__name__)

    call, other = ThreadCall(), Other()

    def stops() -> None:
        stop.set()
        stop.interrupt_handlers()
        told.append("not interrupted")

    with stop.interrupting(call):
        registered = stop.interrupting(other)
        in_a_thread(registered.__enter__)  # as calls are, each in its own
        assert isinstance(run(call, stops), JobInterrupted)
    assert told == ["JobInterrupted"]


@pytest.mark.parametrize("is_asked_before", [False, True])
def test_a_stop_is_passed_on_within_the_block_and_no_longer(is_asked_before: bool) -> None:
    stop, other, later = Stop(), threading.Event(), threading.Event()
    with stop.passed_on_to(later):
        pass
    if is_asked_before:
        stop.set()
    with stop.passed_on_to(other):
        assert other.is_set() == is_asked_before
        stop.set()
        assert other.is_set()
    assert not later.is_set()
