"""Which function handles which job type, in this process.

`@job_handler` registers here when an app's `jobs.py` is imported; `enqueue` looks up a type's own queue, the worker its
function.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import Any, ClassVar, Literal, Protocol

from django.apps import apps

from django_proletarian import names
from django_proletarian.connection import NOTHING_AROUND
from django_proletarian.errors import InvalidHandler, NoHandler
from django_proletarian.event_loop import CoroutineCall
from django_proletarian.interrupting import Interruptible, Stop, ThreadCall
from django_proletarian.job import Job
from django_proletarian.retry import RetryStrategyFunction, RetryStrategyLike, Verdict
from django_proletarian.suggestions import did_you_mean

FailedJobCallback = Callable[[Job[Any], BaseException], object]
# What is put around the call of a handler by those who may have to interrupt it.
Around = Callable[[Interruptible], AbstractContextManager[None]]


class ClaimedRow(Protocol):
    """What a row says beside its payload."""

    @property
    def job_id(self) -> str: ...  # a UUID's text
    @property
    def queue(self) -> str: ...
    @property
    def attempts(self) -> int: ...  # before this one
    @property
    def enqueued_at(self) -> float: ...  # seconds since 1970


class HandlersAttempt(Protocol):
    """The attempt that a handler is called for."""

    payload: object
    state: Any  # what a handler keeps from `run` to `ended`; None at first

    @property
    def job(self) -> Job[Any]: ...  # made when first asked for
    @property
    def claimed(self) -> ClaimedRow: ...
    @property
    def worker_id(self) -> str: ...
    @property
    def database(self) -> str: ...  # alias


@dataclass(frozen=True, eq=False, kw_only=True)
class Handler:
    """A function that handles jobs of one type, and how it wants them run."""

    job_type: str
    function: Callable[..., Any]
    takes: Literal["payload", "job", "job_type and payload"] = "payload"
    queue: str | None = None  # None for the QUEUE setting
    retry_strategy: RetryStrategyLike | RetryStrategyFunction = None  # None for the RETRY_STRATEGY setting
    failed_job: FailedJobCallback | None = None  # None for the FAILED_JOB setting
    atomic: bool = False
    interruptible: bool | None = None  # by a stop; None for coroutine functions only
    time_limit: float | None = None  # seconds; infinity for none, None for the TIME_LIMIT setting
    lease: float | None = None  # seconds; None: the row is locked while its job runs
    keeps_attempts: bool = False  # each attempt leaves a record, whatever the RECORD_ATTEMPTS setting says

    hears_of_ends: ClassVar[bool] = False  # `ended` is called

    def run(self, attempt: HandlersAttempt, stop: Stop, around: Around | None = None) -> object:
        """Call the function with what it takes, and if it is a coroutine function wait for it; return what it returns.

        Raises what the function raises, or JobInterrupted if it may be interrupted and `stop` was asked before its end,
        or what the context manager that `around` makes of the call interrupts it with.
        """
        match self.takes:
            case "payload":
                return self._call(stop, around, self.function, attempt.payload)
            case "job":
                return self._call(stop, around, self.function, attempt.job)
            case "job_type and payload":
                return self._call(stop, around, self.function, attempt.job.job_type, attempt.payload)

    def ended(self, attempt: HandlersAttempt, error: BaseException | None, verdict: Verdict) -> None:
        """Hear what becomes of the job after an attempt, before the commit; `error` is what the attempt ended with.

        For handlers of other kinds, which must raise nothing here.
        """

    def _call(self, stop: Stop, around: Around | None, function: Callable[..., Any], *arguments: object) -> object:
        """Call `function`, which is the handler's own, perhaps with arguments of its own."""
        is_async = self._is_coroutine_function
        by_stop = is_async if self.interruptible is None else self.interruptible
        if not (is_async or by_stop or around):
            return self._checked(function(*arguments))
        call = CoroutineCall() if is_async else ThreadCall()
        with stop.interrupting(call) if by_stop else NOTHING_AROUND, around(call) if around else NOTHING_AROUND:
            return self._checked(call.run(function, *arguments))

    def _checked(self, result: object) -> object:
        if isinstance(result, CoroutineType):
            result.close()
            raise InvalidHandler(
                f"{self.path} returned a coroutine, of which nothing has run. Declare it with `async def`, or run what "
                "it calls with asgiref's async_to_sync."
            )
        return result

    @functools.cached_property
    def _is_coroutine_function(self) -> bool:
        return iscoroutinefunction(self.function)

    @property
    def path(self) -> str:
        """The dotted path of the function."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


# By stored name, so that a plain string never passes for the keyword of the same text. Written when modules are
# imported, read by every thread.
_registered: dict[str, Handler] = {}


def register(handler: Handler) -> None:
    """Make `handler` the one of its job type. Raises InvalidHandler if another function has the type.

    The same function registered again, as on a module's reload, takes its own place.
    """
    stored = names.to_stored(handler.job_type)
    other = _registered.get(stored)
    if other is not None and other.path != handler.path:
        raise InvalidHandler(
            f'Job type "{handler.job_type}" is handled by {other.path} already. '
            f'Give {handler.path} another name: @job_handler("another/name").'
        )
    _registered[stored] = handler


def handler_of(job_type: str) -> Handler | None:
    """The handler registered for `job_type`; None if no module imported so far has one."""
    return _registered.get(names.to_stored(job_type))


# Finds the handler of a job by what its payload is: given job type and payload. None while nobody has such jobs; set
# once, when the module is imported that has.
by_payload: Callable[[str, object], Handler | None] | None = None


def handler_by_payload(job_type: str, payload: object) -> Handler | None:
    """The handler of a job whose payload says who handles it, as Django's tasks do; None for all other jobs."""
    return None if by_payload is None else by_payload(job_type, payload)


def no_handler(job_type: str) -> NoHandler:
    """The error of a job whose type nobody handles here, with what was probably forgotten."""
    module, slash, _ = job_type.rpartition("/")
    meant = did_you_mean(job_type, (handler.job_type for handler in registered()))
    if not meant and slash and module not in sys.modules and any(map(module.startswith, _app_prefixes())):
        meant = f"Its name says that it is in {module}, which nothing has imported. "
    return NoHandler(
        f'No handler for job type "{job_type}". {meant}Decorate one with @job_handler in the jobs.py of an app in '
        "INSTALLED_APPS, which is imported when Django starts, or import its module there; or name a function for all "
        "other types in the HANDLER setting."
    )


def _app_prefixes() -> list[str]:
    return [f"{app.name}." for app in apps.get_app_configs()]


def registered() -> list[Handler]:
    """All handlers of this process, by job type."""
    return sorted(_registered.values(), key=lambda handler: handler.job_type)
