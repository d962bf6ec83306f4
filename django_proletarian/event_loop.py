"""The event loop that a worker thread runs `async` handlers on: made for the first one, kept for all that follow.

It runs in a thread beside, while the worker thread waits for the synchronous calls of the handler, those of the ORM
among them: so they use the worker thread's connections. What a handler leaves behind ends with its job.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakSet

from asgiref.sync import SyncToAsync, async_to_sync
from django.db import connections

T = TypeVar("T")

_of_thread = threading.local()  # .loop: the EventLoop of this worker thread


def close_event_loop() -> None:
    """Close this thread's event loop, if it has one; the next `async` handler would get another."""
    loop: EventLoop | None = getattr(_of_thread, "loop", None)
    if loop is not None:
        del _of_thread.loop
        loop.close()


@contextmanager
def event_loop_closed_after() -> Iterator[None]:
    """Close, at the end of the block, the event loop that was made inside.

    One from before stays: an `async` handler that runs on it is what called the block.
    """
    there_before = hasattr(_of_thread, "loop")
    try:
        yield
    finally:
        if not there_before:
            close_event_loop()


class CoroutineCall:
    """One call of a coroutine function, on this thread's event loop.

    An interrupt cancels it: CancelledError is raised where it awaits, and if that comes out, so does the interrupt's
    own exception, in its place.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._loop: asyncio.AbstractEventLoop | None = None  # while the coroutine runs
        self._error: type[BaseException] | None = None
        self._task: asyncio.Task[None] | None = None  # touched by the loop's thread only

    def interrupt(self, error: type[BaseException]) -> None:
        """See interrupting.Interruptible."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._cancel)

    def run(self, function: Callable[..., Coroutine[Any, Any, object]], *args: object) -> object:
        """Call `function`, wait for its end, and return what it returns.

        Raises what it raises, or what it was interrupted with.
        """
        loop = getattr(_of_thread, "loop", None)
        if loop is None:
            loop = _of_thread.loop = EventLoop()
        return loop.run(self._run, function, *args)

    async def _run(self, function: Callable[..., Coroutine[Any, Any, object]], *args: object) -> object:
        with self._lock:
            if self._error is not None:
                raise self._error
            self._loop = asyncio.get_running_loop()
        ended: BaseException | None = None
        result: object = None

        async def handler() -> None:
            nonlocal ended, result
            try:
                result = await function(*args)
            except BaseException as error:  # noqa: BLE001 # asyncio lets some of them end the whole loop
                ended = error

        try:
            self._task = asyncio.create_task(handler())
            await asyncio.wait([self._task])
        finally:
            with self._lock:
                self._loop = None
        if self._task.cancelled():  # before it began
            ended = asyncio.CancelledError()
        if ended is not None:
            try:
                if self._error is not None and isinstance(ended, asyncio.CancelledError):
                    raise self._error from ended
                raise ended
            finally:
                ended = None  # its traceback holds this frame
        return result

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class EventLoop:
    """An event loop in a thread beside the worker thread that makes it, which alone runs things on it and closes it."""

    def __init__(self) -> None:
        self._is_closing = False  # written by the worker thread, read by the loop's
        self._threads = _Threads(f"{threading.current_thread().name}-async")
        # The next two are the loop's thread's.
        self._generators: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()  # begun and not ended
        self._closing: set[asyncio.Task[None]] = set()  # generators that were dropped before their end
        started: Future[asyncio.AbstractEventLoop] = Future()
        # A daemon, as the worker thread is, so that a handler that ignores the stop can't keep the process from ending.
        name = f"{threading.current_thread().name}-loop"
        self._thread = threading.Thread(target=self._work, args=(started,), name=name, daemon=True)
        self._thread.start()
        self._loop = started.result()

    def run(self, function: Callable[..., Coroutine[Any, Any, T]], *args: object) -> T:
        """Run the coroutine to its end, end what it left behind, and return what it returns; raise what it raises."""
        # So sync_to_async tells an async_to_sync below it which loop to go back to. Should asgiref come to do it in
        # another way, then async_to_sync makes a loop for this call, and all the rest holds.
        asgiref = SyncToAsync.threadlocal
        before = getattr(asgiref, "main_event_loop", None)
        asgiref.main_event_loop, asgiref.main_event_loop_pid = self._loop, os.getpid()
        try:
            # Made here, since older versions look for the loop when it is made.
            return async_to_sync(self._run)(function, *args)
        finally:
            asgiref.main_event_loop = before

    def close(self) -> None:
        """End the loop, its thread, and the threads that handlers called functions in."""
        self._is_closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # -- In the loop's thread ----------------------------------------------------------------------------------------

    def _work(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner() as runner:
            try:
                loop = runner.get_loop()
            except BaseException as error:  # noqa: BLE001 # no file descriptors, perhaps: the worker thread raises it
                started.set_exception(error)
                return
            loop.set_default_executor(self._threads)
            started.set_result(loop)
            while not self._is_closing:
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt):
                    # One of the tasks that a handler left raised it; asyncio lets that end the loop's run.
                    continue

    async def _run(self, function: Callable[..., Coroutine[Any, Any, T]], *args: object) -> T:
        ours = asyncio.all_tasks()
        sys.set_asyncgen_hooks(firstiter=self._generators.add, finalizer=self._close_soon)
        try:
            return await function(*args)
        finally:
            await self._end_what_is_left(ours)

    async def _end_what_is_left(self, ours: set[asyncio.Task[Any]]) -> None:
        """What asyncio.run does when its coroutine has ended, for tasks, generators, and functions in threads."""
        await asyncio.sleep(0)  # for _close_soon
        while left := asyncio.all_tasks() - ours:
            for task in left - self._closing:
                task.cancel()
            await _results(left, "An async handler left a task, which failed")
        generators = [generator.aclose() for generator in list(self._generators)]
        await _results(generators, "An async handler left an async generator, which failed")
        while unfinished := tuple(self._threads.unfinished):
            await asyncio.gather(*map(asyncio.wrap_future, unfinished), return_exceptions=True)

    def _close_soon(self, generator: AsyncGenerator[Any, Any]) -> None:
        # Called by whichever thread drops the generator.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close_generator, generator)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        task = self._loop.create_task(generator.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _results(awaitables: Iterable[Any], trouble: str) -> None:
    """Wait for all of them; tell the loop, which logs it, of each that failed."""
    for result in await asyncio.gather(*awaitables, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            asyncio.get_running_loop().call_exception_handler({"message": trouble, "exception": result})


class _Threads(ThreadPoolExecutor):
    """The threads of asyncio.to_thread, and of sync_to_async where it is not thread-sensitive."""

    def __init__(self, name: str) -> None:
        super().__init__(thread_name_prefix=name)
        self.unfinished: set[Future[Any]] = set()

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = super().submit(_without_leaving_connections, function, *args, **kwargs)
        self.unfinished.add(future)
        future.add_done_callback(self.unfinished.discard)
        return future


def _without_leaving_connections(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    try:
        return function(*args, **kwargs)
    finally:
        # Connections are each thread's own, and nobody else would close this one's.
        connections.close_all()
