"""Declare which function handles which job type: `@job_handler`, and what it makes of the function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from inspect import unwrap
from typing import Any, Generic, TypeVar, Unpack, overload
from uuid import UUID

from django_proletarian.api import aenqueue, enqueue
from django_proletarian.errors import InvalidHandler
from django_proletarian.handlers import FailedJobCallback, Handler, register
from django_proletarian.job import Job
from django_proletarian.leases import SHORTEST
from django_proletarian.new_jobs import EnqueueOptions, checked_name
from django_proletarian.retry import LONGEST_DELAY, RetryStrategyFunction, RetryStrategyLike, as_strategy
from django_proletarian.signatures import check_takes
from django_proletarian.time_limits import as_seconds
from django_proletarian.typing_variables import Parameters, Result_co

T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True)
class JobHandler(Handler, Generic[Parameters, Result_co]):
    """What `@job_handler` makes of a function: it can still be called, and it can enqueue jobs for itself.

    Type checkers know how it is called, and that the payload of its jobs is what it takes.
    """

    def __post_init__(self) -> None:
        # What functools.update_wrapper does, which a frozen dataclass keeps out.
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(self.function, name):
                vars(self)[name] = getattr(self.function, name)
        vars(self)["__wrapped__"] = self.function

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result_co:
        result: Result_co = self.function(*args, **kwargs)
        return result

    # `self` is seen as what it can be called with, which is its payload, or its job if it is `advanced`.
    @overload
    def enqueue(  # type: ignore[misc] # mypy does not see that this is such a callable
        self: Callable[[Job[None]], object], payload: None = None, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    def enqueue(  # type: ignore[misc]
        self: Callable[[None], object], payload: None = None, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    def enqueue(  # type: ignore[misc]
        self: Callable[[Job[T]], object], payload: T, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    def enqueue(self: Callable[[T], object], payload: T, **options: Unpack[EnqueueOptions]) -> UUID: ...
    def enqueue(self, payload: object = None, **options: Unpack[EnqueueOptions]) -> UUID:
        """`enqueue` with this handler's job type and queue; the options are the same."""
        return enqueue(self, payload, **options)

    @overload
    async def aenqueue(  # type: ignore[misc]
        self: Callable[[Job[None]], object], payload: None = None, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    async def aenqueue(  # type: ignore[misc]
        self: Callable[[None], object], payload: None = None, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    async def aenqueue(  # type: ignore[misc]
        self: Callable[[Job[T]], object], payload: T, **options: Unpack[EnqueueOptions]
    ) -> UUID: ...
    @overload
    async def aenqueue(self: Callable[[T], object], payload: T, **options: Unpack[EnqueueOptions]) -> UUID: ...
    async def aenqueue(self, payload: object = None, **options: Unpack[EnqueueOptions]) -> UUID:
        """`enqueue` for coroutines."""
        return await aenqueue(self, payload, **options)


@overload
def job_handler(function: Callable[Parameters, Result_co], /) -> JobHandler[Parameters, Result_co]: ...


@overload
def job_handler(
    job_type: str | None = None,
    /,
    *,
    queue: str | None = None,
    retry_strategy: RetryStrategyLike | RetryStrategyFunction = None,
    failed_job: FailedJobCallback | None = None,
    atomic: bool = False,
    advanced: bool = False,
    interruptible: bool | None = None,
    time_limit: float | timedelta | None = None,
    lease: float | timedelta | None = None,
) -> Callable[[Callable[Parameters, Result_co]], JobHandler[Parameters, Result_co]]: ...


def job_handler(
    function_or_type: Callable[..., Any] | str | None = None,
    /,
    *,
    queue: str | None = None,
    retry_strategy: RetryStrategyLike | RetryStrategyFunction = None,
    failed_job: FailedJobCallback | None = None,
    atomic: bool = False,
    advanced: bool = False,
    interruptible: bool | None = None,
    time_limit: float | timedelta | None = None,
    lease: float | timedelta | None = None,
) -> JobHandler | Callable[[Callable[..., Any]], JobHandler]:
    """Make a function the handler of a job type: its own name by default, `shop.jobs/send_receipt`.

    The function gets the payload, or with `advanced` the whole `Job`; it may be `async`. `queue`, `retry_strategy` and
    `failed_job` None leave it to the settings. `atomic` runs it inside the transaction that archives its job, so that
    what it writes to that database stays if the job is archived as a success, and only then. `interruptible` lets a
    stop of the worker raise `JobInterrupted` in it, at whatever it does then, or cancel it if it is `async`; None does
    so to `async` functions only. `time_limit` (a timedelta or seconds; None for the TIME_LIMIT setting, `math.inf` for
    none) raises `JobTimeout` in a function that runs for longer, in the same way, and counts as a failed attempt.
    `lease` (a timedelta or seconds) runs the job while no transaction is open and its row is not locked but put off for
    so long, again and again as long as it runs; a function whose lease is lost gets `LeaseLost`, unless it says
    `interruptible=False`.

    Raises InvalidHandler for what can't be a handler, and for a job type that another function has.
    """

    def decorate(function: Callable[..., Any]) -> JobHandler:
        job_type = _job_type(given_type, function)
        _check_signature(function, advanced)
        handler = JobHandler(
            job_type=job_type,
            function=function,
            takes="job" if advanced else "payload",
            queue=None if queue is None else checked_name("queue", queue),
            retry_strategy=retry_strategy if callable(retry_strategy) else as_strategy(retry_strategy),
            failed_job=failed_job,
            atomic=atomic,
            interruptible=interruptible,
            time_limit=_seconds("time_limit", time_limit),
            lease=lease_seconds(lease),
        )
        register(handler)
        return handler

    if callable(function_or_type):
        given_type = None
        return decorate(function_or_type)
    given_type = function_or_type
    return decorate


def _check_signature(function: Callable[..., Any], advanced: bool) -> None:
    try:
        check_takes(function, "its job" if advanced else "its payload")
    except ValueError as error:
        raise InvalidHandler(
            f"{function.__module__}.{function.__qualname__} {error}. A handler takes one argument, the payload, in "
            "which all it needs is; with advanced=True the whole job. Methods can't be handlers."
        ) from error


def _seconds(option: str, given: float | timedelta | None) -> float | None:
    try:
        return as_seconds(given)
    except ValueError as error:
        raise InvalidHandler(f"{option} is {error}. For example: {option}=timedelta(minutes=5).") from error


def lease_seconds(given: float | timedelta | None) -> float | None:
    """Seconds from what a handler or a task says; None for no lease. Raises InvalidHandler."""
    seconds = _seconds("lease", given)
    if seconds is not None and not SHORTEST <= seconds <= LONGEST_DELAY.total_seconds():
        raise InvalidHandler(
            f"lease is {given!r}, which is not between {SHORTEST:g} second and {LONGEST_DELAY.days} days. It is no "
            "limit, but the time after which a killed worker's job runs again. For example: lease=timedelta(minutes=5)."
        )
    return seconds


def _job_type(job_type: str | None, function: Callable[..., Any]) -> str:
    if isinstance(function, Handler) or not callable(function):
        raise InvalidHandler(f"@job_handler goes on a function, not on {function!r}.")
    if job_type is not None:
        return checked_name("job_type", job_type)
    name = getattr(unwrap(function), "__qualname__", "<unnamed>")
    if "<" in name:
        raise InvalidHandler(
            f"{name} of {function.__module__} is made inside another function, or is a lambda: other processes could "
            'not find it by that name. Give it one: @job_handler("shop/mail").'
        )
    return f"{function.__module__}/{name}"
