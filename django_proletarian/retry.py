"""What becomes of a job after an attempt: pure rules, no clock, no database.

Called by the worker between running a handler and recording what happened.

Source: proletarian/retry.clj.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django_proletarian.errors import InvalidRetryStrategy
from django_proletarian.job import Job

# PostgreSQL and Python both hold any date that lies this far ahead.
LONGEST_DELAY = timedelta(days=365_000)


@dataclass(frozen=True, slots=True)
class RetryStrategy:
    """How often a failed job is run again, and after what delays.

    `retries` counts the runs after the first, so a job runs at most `retries + 1` times. `delays` are seconds or
    timedeltas, one for each retry; past the end the last one is used again, and with none a retry is due at once.
    Raises InvalidRetryStrategy for anything else.
    """

    retries: int
    delays: Sequence[float | timedelta] = ()

    def __post_init__(self) -> None:
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise InvalidRetryStrategy(f"retries must be a whole number from 0 up, not {self.retries!r}.")
        if not isinstance(self.delays, list | tuple):
            raise InvalidRetryStrategy(f"delays must be a list of seconds or timedeltas, not {self.delays!r}.")
        object.__setattr__(self, "delays", tuple(as_delay(delay) for delay in self.delays))


# What a handler or the RETRY_STRATEGY setting may give: a strategy, the original's map, or a function of the job and
# the exception that returns either. None means no retries.
RetryStrategyLike = RetryStrategy | Mapping[str, object] | None
RetryStrategyFunction = Callable[[Job[Any], BaseException], RetryStrategyLike]


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned: archive as success."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The attempt failed and there are more: run again after `delay`."""

    delay: timedelta
    retries_left: int


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The attempt failed and it was the last: archive as failure.

    `retries_left` is None without a strategy, else 0, or below 0 if the strategy now allows fewer than were made.
    """

    retries_left: int | None


@dataclass(frozen=True, slots=True)
class LeftInQueue:
    """The attempt was interrupted: the row stays as it is."""


Verdict = Succeeded | RetryAfter | GaveUp | LeftInQueue


def decide(attempts: int, strategy: RetryStrategyLike) -> RetryAfter | GaveUp:
    """What becomes of a job whose attempt failed.

    `attempts` counts this attempt too, so it is at least 1. Raises InvalidRetryStrategy if `strategy` is none.

    Source: proletarian/retry.clj, retry-data.
    """
    strategy = as_strategy(strategy)
    if strategy is None:
        return GaveUp(None)
    retries_left = strategy.retries + 1 - attempts if strategy.retries else 0
    if retries_left <= 0:
        return GaveUp(retries_left)
    return RetryAfter(delay_before_retry(attempts, strategy.delays), retries_left)


# What a crashed job waits where its strategy says nothing: the process that would run it next has only just started.
DELAY_AFTER_CRASH = timedelta(seconds=1)


def decide_after_crash(
    attempts: int, strategy: RetryStrategyLike, max_crashes: int, stagger: timedelta
) -> RetryAfter | GaveUp:
    """What becomes of a job whose worker process died.

    A crash takes all jobs of the process with it, guilty or not, so none is given up before it has been run
    `max_crashes` times, whatever its strategy. `stagger` comes on top of the delay: jobs that crashed together are to
    run apart. Raises InvalidRetryStrategy if `strategy` is none.
    """
    strategy = as_strategy(strategy)
    retries = strategy.retries if strategy is not None else 0
    runs_left = max(retries + 1, max_crashes) - attempts
    if runs_left <= 0:
        return GaveUp(None if strategy is None else runs_left)
    delays = strategy.delays if strategy is not None else ()
    return RetryAfter((delay_before_retry(attempts, delays) if delays else DELAY_AFTER_CRASH) + stagger, runs_left)


def delay_before_retry(attempts: int, delays: Sequence[float | timedelta]) -> timedelta:
    """The delay that follows attempt number `attempts`: its own, else the last one, else none."""
    if not delays:
        return timedelta(0)
    return as_delay(delays[min(attempts, len(delays)) - 1])


def as_strategy(given: object) -> RetryStrategy | None:
    """A strategy from what a setting, a decorator or a function gave. Raises InvalidRetryStrategy."""
    match given:
        case None | RetryStrategy():
            return given
        case {"retries": retries, **rest} if not rest.keys() - {"delays"}:
            delays = rest.get("delays")
            return RetryStrategy(retries, () if delays is None else delays)  # type: ignore[arg-type] # it checks itself
        case _:
            raise InvalidRetryStrategy(
                f"{given!r} is no retry strategy. Give RetryStrategy(retries=3, delays=[1, 5]), "
                'the map {"retries": 3, "delays": [1, 5]}, or None for no retries.'
            )


def as_delay(given: object) -> timedelta:
    """A delay from seconds or a timedelta. Raises InvalidRetryStrategy if it is negative, endless or neither."""
    delay = given
    if isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given):
        delay = timedelta(seconds=given) if abs(given) <= LONGEST_DELAY.total_seconds() else None
    if not isinstance(delay, timedelta) or delay < timedelta(0) or delay > LONGEST_DELAY:
        raise InvalidRetryStrategy(
            f"a delay must be seconds or a timedelta, from 0 to {LONGEST_DELAY.days} days, not {given!r}."
        )
    return delay
