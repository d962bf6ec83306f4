"""Raise an exception into a handler from another thread: while it runs, and never after.

The worker raises JobInterrupted in the handlers that may be interrupted, when it is asked to stop.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from django_proletarian.errors import JobInterrupted

# A function object of our own: ctypes.pythonapi's is shared with everybody who gives it other argument types.
_set_async_exception = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


class Interruptible(Protocol):
    """One call of a handler, into which other threads may raise an exception."""

    def interrupt(self, error: type[BaseException]) -> None:
        """Raise `error` in the handler if it runs, or instead of running it if it has not begun.

        The first one only. Nothing happens if the handler has ended. Any thread may call this.
        """


class ThreadCall:
    """One call of a function in the thread that asks for it.

    An interrupt is raised at the next bytecode that the thread runs. A function that waits in C, for a query or in
    time.sleep, gets it when it comes back. In a finalizer, which the garbage collector may call anywhere, Python drops
    it as it drops all exceptions; the function then runs on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the three below; held while raising, so that no raiser is ever half done
        self._thread: int | None = None  # that runs the function; None before and after
        self._has_ended = False
        self._error: type[BaseException] | None = None

    def interrupt(self, error: type[BaseException]) -> None:
        """See Interruptible."""
        with self._lock:
            if self._error is not None or self._has_ended:
                return
            self._error = error
            if self._thread is not None:
                _set_async_exception(self._thread, error)

    def run(self, function: Callable[..., object], *args: object) -> object:
        """Call `function` and return what it returns; raise what it raises, or what it was interrupted with.

        What is raised in the instant in which the function ends comes out of here too, or is dropped; it is never left
        for what runs next. It may arrive at any bytecode from `_open` to the end of `_close`. But there is one at most,
        so that `_close` is undisturbed at the second try.
        """
        has_ended = False
        outcome: BaseException | None = None
        result: object = None
        try:
            self._open()
            try:
                result = function(*args)
                # An interrupt that came while the function waited in C, and did not find another bytecode of it to be
                # raised at, has still come in time. (Python 3.13 looks for it only here.)
                _next_bytecodes()
            except BaseException as error:  # noqa: BLE001 # raised again below
                outcome = error
            has_ended = True
            self._close()
        except BaseException as late:  # noqa: BLE001 # raised again below, or too late to be
            self._close()
            if not has_ended:
                outcome = late
        if outcome is not None:
            try:
                raise outcome
            finally:
                # Its traceback holds this frame: a circle that would keep all that the handler used.
                del outcome
        return result

    def _open(self) -> None:
        with self._lock:
            if self._error is not None:
                raise self._error
            self._thread = threading.get_ident()

    def _close(self) -> None:
        with self._lock:
            self._has_ended = True
            self._thread = None
        # No raiser is half done now, and none will begin. What one left for this thread arrives at the next bytecodes,
        # these. (PyThreadState_SetAsyncExc could take it back instead, but then Python 3.11 hangs if it is traced.)
        _next_bytecodes()


def _next_bytecodes() -> None:
    """Python looks for exceptions from other threads when a function begins."""


class Stop(threading.Event):
    """That a worker was asked to stop: handlers look for it, wait for it, or are interrupted."""

    def __init__(self) -> None:
        super().__init__()
        self._calls_lock = threading.Lock()  # guards the next two
        self._calls: dict[Interruptible, int] = {}  # running, with their threads
        self._others: set[threading.Event] = set()  # to be set too

    def set(self) -> None:
        """Ask for a stop."""
        super().set()
        with self._calls_lock:
            others = list(self._others)
        for other in others:
            other.set()

    @contextmanager
    def passed_on_to(self, other: threading.Event) -> Iterator[None]:
        """Set `other` too when a stop is asked within the block, or at once if one was."""
        with self._calls_lock:
            self._others.add(other)
        try:
            if self.is_set():
                other.set()
            yield
        finally:
            with self._calls_lock:
                self._others.discard(other)

    @contextmanager
    def interrupting(self, call: Interruptible) -> Iterator[None]:
        """Let `call`, which runs inside, be interrupted when a stop is asked, or at once if one was."""
        with self._calls_lock:
            self._calls[call] = threading.get_ident()
        try:
            if self.is_set():
                call.interrupt(JobInterrupted)
            yield
        finally:
            with self._calls_lock:
                del self._calls[call]

    def interrupt_handlers(self) -> None:
        """Interrupt the calls that run; to be called after `set`. A handler that calls this is the last."""
        with self._calls_lock:
            calls = dict(self._calls)
        for call in sorted(calls, key=lambda call: calls[call] == threading.get_ident()):
            call.interrupt(JobInterrupted)
