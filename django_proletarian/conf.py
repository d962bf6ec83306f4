"""The PROLETARIAN setting: read once into one frozen object, each wrong value named with its remedy.

`settings()` is for everything that runs; `problems()` for the system checks. Nothing is imported while reading, since
models ask for their table names while apps are still loading: dotted paths are resolved when first used.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections
from django.utils.module_loading import import_string

from django_proletarian import names
from django_proletarian.durations import LONGEST
from django_proletarian.errors import InvalidRetryStrategy
from django_proletarian.handlers import Handler
from django_proletarian.handlers import handler_of as registered_handler_of
from django_proletarian.heartbeat import default_path
from django_proletarian.retry import as_strategy
from django_proletarian.serializers import Serializer
from django_proletarian.tables import Tables
from django_proletarian.worker import WorkerOptions

TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?")
START_METHODS = ("spawn", "fork", "forkserver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What PROLETARIAN says, defaults filled in. Durations are seconds."""

    job_table: str
    archived_job_table: str
    queue: str
    queues: tuple[str, ...]
    serializer: object  # an instance or a dotted path; so are the next seven
    handler: object
    retry_strategy: object
    failed_job: object
    on_polling_error: object
    on_shutdown: object
    job_id_strategy: object
    clock: object
    threads: int
    polling_interval: float
    idle_polling_interval: float
    unbounded_claim_interval: float
    listen_database: str | None
    batch_size: int
    batch_seconds: float
    shutdown_timeout: float
    worker_id: str | None
    processes: int
    start_method: str
    max_jobs_per_process: int | None
    max_memory_per_process: int | None  # MiB
    max_crashes: int
    heartbeat_file: str | None
    retention: Mapping[str, float]
    metrics_token: str | None

    @property
    def tables(self) -> Tables:
        return Tables(self.job_table, self.archived_job_table)


@dataclass(frozen=True, slots=True)
class Option:
    """One key of PROLETARIAN. `read` makes a given value the one that is used, or raises ValueError saying why not."""

    key: str
    default: object
    read: Callable[[Any], object]
    check_id: str
    example: str  # Python source of a value that can be pasted
    may_be_path: bool = False  # a str is the dotted path of the value
    is_secret: bool = False  # the value is shown nowhere


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with PROLETARIAN, for a system check or an exception."""

    check_id: str
    message: str
    hint: str


def _table(value: Any) -> str:
    if not isinstance(value, str) or not TABLE_NAME.fullmatch(value):
        raise ValueError("is not a lower-case table name, alone or after its schema and a dot")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or value == "" or "\x00" in value:
        raise ValueError("is not a queue name")
    return names.parse(value) if not isinstance(value, names.PlainName) else value


def _queues(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, list | tuple) or not value:
        raise ValueError("is not a list of queue names")
    return tuple(_name(name) for name in value)


def _seconds(value: Any, *, from_zero: bool) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ValueError("is neither seconds nor a timedelta")
    if seconds < 0 or (seconds == 0 and not from_zero):
        raise ValueError("is below zero" if from_zero else "is not above zero")
    # The longest wait that Python's threads can make.
    return min(float(seconds), 4_000_000.0)


def _interval(value: Any) -> float:
    return _seconds(value, from_zero=False)


def _timeout(value: Any) -> float:
    return _seconds(value, from_zero=True)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("is not a whole number from 1 up")
    return value


def _serializer(value: Any) -> object:
    if not isinstance(value, str) and not isinstance(value, Serializer):
        raise ValueError("is neither a dotted path nor an object with encode and decode")
    return value


def _callable(value: Any) -> object:
    if value is not None and not isinstance(value, str) and not callable(value):
        raise ValueError("is neither a dotted path nor a function")
    return value


def _retry_strategy(value: Any) -> object:
    if isinstance(value, str) or callable(value):
        return value
    try:
        return as_strategy(value)
    except InvalidRetryStrategy as error:
        raise ValueError(f"is no retry strategy: {error}") from error


def _worker_id(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError("is not a text")
    return value


def _retention(value: Any) -> dict[str, float]:
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


def _token(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) < 16 or not value.isascii() or " " in value):
        raise ValueError("is not a text of 16 or more ASCII characters without spaces")
    return value


def _alias(value: Any) -> str | None:
    if value is not None and value not in django_settings.DATABASES:
        raise ValueError("is not an alias of DATABASES")
    return None if value is None else str(value)


def _count_or_none(value: Any) -> int | None:
    return None if value is None else _count(value)


def _path(value: Any) -> str | None:
    if value is not None and not isinstance(value, str | os.PathLike):
        raise ValueError("is not a path")
    return None if value is None else os.fspath(value)


def _start_method(value: Any) -> str:
    if value not in START_METHODS:
        raise ValueError(f"is none of {', '.join(START_METHODS)}")
    return str(value)


OPTIONS = (
    Option("JOB_TABLE", "proletarian.job", _table, "E002", '"proletarian.job"'),
    Option("ARCHIVED_JOB_TABLE", "proletarian.archived_job", _table, "E003", '"proletarian.archived_job"'),
    Option("QUEUE", "proletarian/default", _name, "E004", '"proletarian/default"'),
    Option("QUEUES", None, _queues, "E005", '["proletarian/default", "shop/mail"]'),
    Option(
        "SERIALIZER",
        "django_proletarian.serializers.TransitSerializer",
        _serializer,
        "E006",
        '"django_proletarian.serializers.JSONSerializer"',
        may_be_path=True,
    ),
    Option("HANDLER", None, _callable, "E007", '"shop.jobs.handle_job"', may_be_path=True),
    Option("RETRY_STRATEGY", None, _retry_strategy, "E008", '{"retries": 3, "delays": [1, 5, 60]}', may_be_path=True),
    Option("FAILED_JOB", None, _callable, "E009", '"shop.jobs.tell_somebody"', may_be_path=True),
    Option("ON_POLLING_ERROR", None, _callable, "E010", '"shop.jobs.on_polling_error"', may_be_path=True),
    Option("ON_SHUTDOWN", None, _callable, "E011", '"shop.jobs.on_shutdown"', may_be_path=True),
    Option("JOB_ID_STRATEGY", "uuid.uuid4", _callable, "E017", '"django_proletarian.ids.uuid7"', may_be_path=True),
    Option("CLOCK", None, _callable, "E012", '"shop.clock.now"', may_be_path=True),
    Option("THREADS", 1, _count, "E013", "4"),
    Option("POLLING_INTERVAL", 0.1, _interval, "E014", "0.1"),
    Option("IDLE_POLLING_INTERVAL", 1.0, _interval, "E018", "1"),
    Option("UNBOUNDED_CLAIM_INTERVAL", 1.0, _interval, "E019", "1"),
    Option("LISTEN_DATABASE", None, _alias, "E020", '"default"'),
    Option("BATCH_SIZE", 1, _count, "E021", "100"),
    Option("BATCH_SECONDS", 0.1, _timeout, "E022", "0.1"),
    Option("SHUTDOWN_TIMEOUT", 10.0, _timeout, "E015", "10"),
    Option("WORKER_ID", None, _worker_id, "E016", '"mail-1"'),
    Option("PROCESSES", 1, _count, "E030", "2"),
    Option("START_METHOD", "spawn", _start_method, "E031", '"spawn"'),
    Option("MAX_JOBS_PER_PROCESS", None, _count_or_none, "E032", "10_000"),
    Option("MAX_MEMORY_PER_PROCESS", None, _count_or_none, "E033", "500"),
    Option("MAX_CRASHES", 3, _count, "E034", "3"),
    Option("HEARTBEAT_FILE", None, _path, "E035", '"/run/shop/worker.heartbeat"'),
    Option("RETENTION", {}, _retention, "E023", '{"success": timedelta(days=7), "failure": timedelta(days=90)}'),
    Option("METRICS_TOKEN", None, _token, "E024", 'os.environ["METRICS_TOKEN"]', is_secret=True),
)


def read(given: object) -> tuple[Settings, list[Problem]]:
    """The settings that `given`, the value of PROLETARIAN, makes: with defaults for wrong values, and the problems."""
    problems: list[Problem] = []
    if not isinstance(given, Mapping):
        example = 'PROLETARIAN = {"THREADS": 4}'
        problems.append(Problem("E001", f"PROLETARIAN is {given!r}, not a dict.", f"Write it as {example}."))
        given = {}
    known = {option.key for option in OPTIONS}
    for key in given.keys() - known:
        problems.append(Problem("E001", f"PROLETARIAN has no setting {key!r}.", f"It has {', '.join(sorted(known))}."))
    values: dict[str, Any] = {}
    for option in OPTIONS:
        value = given.get(option.key, option.default)
        try:
            values[option.key.lower()] = option.read(value)
        except ValueError as error:
            problems.append(_problem(option, value, str(error)))
            values[option.key.lower()] = option.default
    if values["job_table"] == values["archived_job_table"]:
        message = f"JOB_TABLE and ARCHIVED_JOB_TABLE are both {values['job_table']!r}."
        problems.append(Problem("E003", message, "Give them two names, or leave both out for the original's."))
    values["queues"] = values["queues"] or (values["queue"],)
    return Settings(**values), problems


def _problem(option: Option, value: object, why: str) -> Problem:
    return Problem(
        option.check_id,
        f"PROLETARIAN[{option.key!r}] is {'set to what' if option.is_secret else f'{value!r}, which'} {why}.",
        f'For example: PROLETARIAN = {{"{option.key}": {option.example}}}.',
    )


def problems() -> list[Problem]:
    """Everything wrong with PROLETARIAN, paths that can't be imported included. Call it when apps are loaded."""
    read_settings, wrong = read(getattr(django_settings, "PROLETARIAN", {}))
    for option in OPTIONS:
        value = getattr(read_settings, option.key.lower())
        if option.may_be_path and isinstance(value, str):
            try:
                option.read(_import(value))
            except (ImportError, ValueError) as error:
                wrong.append(_problem(option, value, f"can't be used: {error}"))
    return wrong


def tables() -> Tables:
    """Where jobs live, even if other settings are wrong: models must load for the system checks to say what is."""
    return read(getattr(django_settings, "PROLETARIAN", {}))[0].tables


@functools.cache
def settings() -> Settings:
    """The settings in force. Raises ImproperlyConfigured, naming every wrong value, if there are any."""
    read_settings, wrong = read(getattr(django_settings, "PROLETARIAN", {}))
    if wrong:
        raise ImproperlyConfigured(" ".join(f"{problem.message} {problem.hint}" for problem in wrong))
    return read_settings


@functools.cache
def resolved(key: str) -> Any:
    """The value of a setting that may be a dotted path, imported. Raises ImproperlyConfigured if that fails."""
    value = getattr(settings(), key.lower())
    option = next(option for option in OPTIONS if option.key == key)
    if not (option.may_be_path and isinstance(value, str)):
        return value
    try:
        return option.read(_import(value))
    except (ImportError, ValueError) as error:
        problem = _problem(option, value, f"can't be used: {error}")
        raise ImproperlyConfigured(f"{problem.message} {problem.hint}") from error


def _import(path: str) -> Any:
    found = import_string(path)
    # A serializer is named by its class; a retry strategy, a callback or a handler is what it is.
    return found() if isinstance(found, type) else found


def serializer() -> Serializer:
    """The serializer of this project's payloads."""
    configured: Serializer = resolved("SERIALIZER")
    return configured


def handler_of(job_type: str) -> Handler | None:
    """The handler registered for `job_type`, else the HANDLER setting's function, else None."""
    return registered_handler_of(job_type) or _fallback(job_type)


def _fallback(job_type: str) -> Handler | None:
    function = resolved("HANDLER")
    if function is None:
        return None
    return Handler(job_type=job_type, function=function, takes="job_type and payload")


def now() -> datetime | None:
    """What replaces the database's clock; None, as in any real installation, for that clock itself."""
    clock: Callable[[], datetime] | None = resolved("CLOCK")
    return clock() if clock is not None else None


def worker_options(
    *, database: str, queues: Iterable[str] | None, drain: bool = False, max_jobs: int | None = None, **given: object
) -> WorkerOptions:
    """A worker's options: what is given, and the settings for what is None or left out.

    Each of `given` is the lower-case name of a setting. Raises ValueError for a value that can't be.
    """
    values = {key: resolved(key.upper()) for key in WORKER_SETTINGS}
    values |= {key: _read_given(key, value) for key, value in given.items() if value is not None}
    chosen = settings().queues if queues is None else _read_given("queues", list(queues))
    values["listen_database"] = values["listen_database"] or database
    if connections[values["listen_database"]].vendor != "postgresql":
        raise ValueError(f"LISTEN_DATABASE is {values['listen_database']!r}, which is not PostgreSQL.")
    if values["worker_id"] is None:
        values["worker_id"] = f"proletarian[{','.join(names.shown(queue) for queue in chosen)}]"
    return WorkerOptions(
        queues=chosen,
        database=database,
        tables=settings().tables,
        serializer=serializer(),
        find_handler=handler_of,
        drain=drain,
        max_jobs=None if max_jobs is None else _read_given("threads", max_jobs, shown_as="max_jobs"),
        **values,
    )


def worker_processes(**given: object) -> dict[str, Any]:
    """How a worker's processes are run: what is given, and the settings for what is None.

    Each of `given` is the lower-case name of a setting. Raises ValueError for a value that can't be.
    """
    return {key: getattr(settings(), key) if value is None else _read_given(key, value) for key, value in given.items()}


def heartbeat_path(given: str | os.PathLike[str] | None = None) -> Path | None:
    """The heartbeat file: the one given, else the setting's, else one of this project's own; None for none, if empty.

    All commands of a project find the same without being told, and two projects on a host don't mix.
    """
    chosen = settings().heartbeat_file if given is None else os.fspath(given)
    if chosen is not None:
        return Path(chosen) if chosen else None
    databases = [
        (alias, each.get("HOST"), str(each.get("PORT")), str(each.get("NAME")))
        for alias, each in sorted(django_settings.DATABASES.items())
    ]
    return default_path([django_settings.SETTINGS_MODULE, databases, settings().tables])


WORKER_SETTINGS = (
    "worker_id",
    "threads",
    "polling_interval",
    "idle_polling_interval",
    "unbounded_claim_interval",
    "listen_database",
    "batch_size",
    "batch_seconds",
    "shutdown_timeout",
    "max_crashes",
    "retry_strategy",
    "failed_job",
    "on_polling_error",
    "on_shutdown",
    "clock",
    "retention",
)


def _read_given(key: str, value: object, shown_as: str | None = None) -> Any:
    option = next(option for option in OPTIONS if option.key == key.upper())
    try:
        return option.read(value)
    except ValueError as error:
        raise ValueError(f"{shown_as or key} is {value!r}, which {error}.") from error


def _forget(*, setting: str, **kwargs: object) -> None:
    if setting == "PROLETARIAN":
        settings.cache_clear()
        resolved.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_proletarian.conf")
