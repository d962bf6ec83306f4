"""What each setting of PROLETARIAN may be: functions that read a given value, for `conf`.

Each returns the value that is used, durations as seconds, or raises ValueError saying what is wrong, as the end of a
sentence that begins with the value.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings as django_settings

from django_proletarian import names
from django_proletarian.attempts import RECORD_ATTEMPTS
from django_proletarian.durations import LONGEST
from django_proletarian.errors import InvalidRetryStrategy
from django_proletarian.retry import as_strategy
from django_proletarian.serializers import Serializer
from django_proletarian.signatures import check_takes

TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?")
START_METHODS = ("spawn", "fork", "forkserver")


def table_name(value: Any) -> str:
    if not isinstance(value, str) or not TABLE_NAME.fullmatch(value):
        raise ValueError("is not a lower-case table name, alone or after its schema and a dot")
    return value


def queue_name(value: Any) -> str:
    if not isinstance(value, str) or value == "" or "\x00" in value:
        raise ValueError("is not a queue name")
    return names.parse(value) if not isinstance(value, names.PlainName) else value


def queue_names(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, list | tuple) or not value:
        raise ValueError("is not a list of queue names")
    return tuple(queue_name(name) for name in value)


def seconds(value: Any, *, from_zero: bool) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ValueError("is neither seconds nor a timedelta")
    if seconds < 0 or (seconds == 0 and not from_zero):
        raise ValueError("is below zero" if from_zero else "is not above zero")
    # The longest wait that Python's threads can make.
    return min(float(seconds), 4_000_000.0)


def interval(value: Any) -> float:
    return seconds(value, from_zero=False)


def interval_or_zero(value: Any) -> float:
    return seconds(value, from_zero=True)


def interval_or_none(value: Any) -> float | None:
    return None if value is None else interval(value)


def count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("is not a whole number from 1 up")
    return value


def serializer(value: Any) -> object:
    if not isinstance(value, str) and not isinstance(value, Serializer):
        raise ValueError("is neither a dotted path nor an object with encode and decode")
    return value


def function_of(*arguments: str) -> Callable[[Any], object]:
    """A reader of functions that are called with `arguments`."""

    def function(value: Any) -> object:
        if value is not None and not isinstance(value, str):
            if not callable(value):
                raise ValueError("is neither a dotted path nor a function")
            check_takes(value, *arguments)
        return value

    return function


def retry_strategy(value: Any) -> object:
    if isinstance(value, str):
        return value
    if callable(value):
        check_takes(value, "the job", "its error")
        return value
    try:
        return as_strategy(value)
    except InvalidRetryStrategy as error:
        raise ValueError(f"is no retry strategy: {error}") from error


def worker_id(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError("is not a text")
    return value


def retention(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError("is not a dict of statuses and how long to keep their archived jobs")
    for status, duration in value.items():
        if status not in ("success", "failure"):
            raise ValueError(f'has a status {status!r}; there are "success" and "failure"')
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ValueError(f"has {duration!r} for {status}, which is no timedelta, or number of seconds, above zero")
        if seconds > LONGEST.total_seconds():
            raise ValueError(f"has {duration!r} for {status}; leave the status out to keep its jobs for ever")
    return {str(k): float(v.total_seconds() if isinstance(v, timedelta) else v) for k, v in value.items()}


def token(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) < 16 or not value.isascii() or " " in value):
        raise ValueError("is not a text of 16 or more ASCII characters without spaces")
    return value


def database_alias(value: Any) -> str | None:
    if value is not None and value not in django_settings.DATABASES:
        raise ValueError("is not an alias of DATABASES")
    return None if value is None else str(value)


def count_or_none(value: Any) -> int | None:
    return None if value is None else count(value)


def path(value: Any) -> str | None:
    if value is not None and not isinstance(value, str | os.PathLike):
        raise ValueError("is not a path")
    return None if value is None else os.fspath(value)


def record_attempts(value: Any) -> str:
    if value not in RECORD_ATTEMPTS:
        raise ValueError(f"is none of {', '.join(map(repr, RECORD_ATTEMPTS))}")
    return str(value)


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither True nor False")
    return bool(value)


def tracing(value: Any) -> bool:
    if yes_or_no(value) and importlib.util.find_spec("opentelemetry") is None:
        raise ValueError('needs what the extra installs: pip install "django-proletarian[tracing]"')
    return bool(value)


def start_method(value: Any) -> str:
    if value not in START_METHODS:
        raise ValueError(f"is none of {', '.join(START_METHODS)}")
    return str(value)
