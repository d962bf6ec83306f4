"""What time it is for jobs in a test: one that stands still, or Python's while a test has frozen it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from django.conf import settings
from django.test import override_settings
from django.utils import timezone


class FrozenClock(ContextDecorator):
    """Stands still at `at` (aware; None for now) until it is moved; within its block enqueue and workers go by it.

    Calling it says what time it is. A worker that was started before the block goes on by its own clock. `timezone.now`
    is not touched.
    """

    def __init__(self, at: datetime | None = None) -> None:
        self._now = _aware(timezone.now() if at is None else at)
        self._setting: override_settings | None = None

    def __call__(self, *function: Any) -> Any:
        # ContextDecorator wants to be called with a function, a CLOCK with nothing.
        return super().__call__(*function) if function else self._now

    def move_to(self, at: datetime) -> datetime:
        """Set it, forwards or back; return what it is now."""
        self._now = _aware(at)
        return self._now

    def advance(self, by: timedelta | float) -> datetime:
        """Put it forward by a timedelta, or by seconds; return what it is now."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)
        return self._now

    def __enter__(self) -> Self:
        self._setting = _with_clock(self)
        self._setting.enable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._setting is not None:
            self._setting.disable()
            self._setting = None


def frozen_time() -> datetime | None:
    """A CLOCK for tests that use time-machine or freezegun: what time they pretend; None, the database's, if none."""
    return datetime.now(UTC) if any(pretends() for pretends in (_time_machine, _freezegun)) else None


@contextmanager
def obeying_frozen_time() -> Iterator[None]:
    """Let enqueue and workers go by `frozen_time`, unless the project has a CLOCK of its own."""
    if getattr(settings, "PROLETARIAN", {}).get("CLOCK") is not None:
        yield
        return
    with _with_clock(frozen_time):
        yield


def _time_machine() -> bool:
    time_machine = sys.modules.get("time_machine")  # a test that has moved the time has imported it
    return time_machine is not None and bool(time_machine.escape_hatch.is_travelling())


def _freezegun() -> bool:
    freezegun = sys.modules.get("freezegun.api")
    return freezegun is not None and bool(freezegun.freeze_factories)


def _with_clock(clock: Callable[[], datetime | None]) -> override_settings:
    return override_settings(PROLETARIAN={**getattr(settings, "PROLETARIAN", {}), "CLOCK": clock})


def _aware(at: datetime) -> datetime:
    if timezone.is_naive(at):
        if settings.USE_TZ:
            raise ValueError(f"{at!r} has no time zone. For example: datetime(2026, 1, 1, tzinfo=UTC).")
        at = timezone.make_aware(at, timezone.get_default_timezone())
    return at
