"""The PROLETARIAN setting: read once into one frozen object, each wrong value named with its remedy.

`settings()` is for everything that runs; `problems()` for the system checks. Nothing is imported while reading, since
models ask for their table names while apps are still loading: dotted paths are resolved when first used.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import connections
from django.utils.module_loading import import_string

from django_proletarian import names, priorities, setting_values
from django_proletarian.attempts import RecordAttempts
from django_proletarian.handlers import Handler, registered
from django_proletarian.handlers import handler_of as registered_handler_of
from django_proletarian.heartbeat import default_path
from django_proletarian.serializers import Serializer
from django_proletarian.suggestions import did_you_mean
from django_proletarian.tables import Tables
from django_proletarian.worker_options import WorkerOptions

if TYPE_CHECKING:
    from django_proletarian.tracing import Tracing


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
    record_attempts: RecordAttempts
    tracing: bool
    immediate: bool
    time_limit: float | None
    time_limit_grace: float

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


OPTIONS = (
    Option("JOB_TABLE", "proletarian.job", setting_values.table_name, "E002", '"proletarian.job"'),
    Option(
        "ARCHIVED_JOB_TABLE",
        "proletarian.archived_job",
        setting_values.table_name,
        "E003",
        '"proletarian.archived_job"',
    ),
    Option("QUEUE", "proletarian/default", setting_values.queue_name, "E004", '"proletarian/default"'),
    Option("QUEUES", None, setting_values.queue_names, "E005", '["proletarian/default", "shop/mail"]'),
    Option(
        "SERIALIZER",
        "django_proletarian.serializers.TransitSerializer",
        setting_values.serializer,
        "E006",
        '"django_proletarian.serializers.JSONSerializer"',
        may_be_path=True,
    ),
    Option(
        "HANDLER",
        None,
        setting_values.function_of("its type", "its payload"),
        "E007",
        '"shop.jobs.handle_job"',
        may_be_path=True,
    ),
    Option(
        "RETRY_STRATEGY",
        None,
        setting_values.retry_strategy,
        "E008",
        '{"retries": 3, "delays": [1, 5, 60]}',
        may_be_path=True,
    ),
    Option(
        "FAILED_JOB",
        None,
        setting_values.function_of("the job", "its error"),
        "E009",
        '"shop.jobs.tell_somebody"',
        may_be_path=True,
    ),
    Option(
        "ON_POLLING_ERROR",
        None,
        setting_values.function_of("the error"),
        "E010",
        '"shop.jobs.on_polling_error"',
        may_be_path=True,
    ),
    Option("ON_SHUTDOWN", None, setting_values.function_of(), "E011", '"shop.jobs.on_shutdown"', may_be_path=True),
    Option(
        "JOB_ID_STRATEGY",
        "uuid.uuid4",
        setting_values.function_of(),
        "E017",
        '"django_proletarian.ids.uuid7"',
        may_be_path=True,
    ),
    Option("CLOCK", None, setting_values.function_of(), "E012", '"shop.clock.now"', may_be_path=True),
    Option("THREADS", 1, setting_values.count, "E013", "4"),
    Option("POLLING_INTERVAL", 0.1, setting_values.interval, "E014", "0.1"),
    Option("IDLE_POLLING_INTERVAL", 1.0, setting_values.interval, "E018", "1"),
    Option("UNBOUNDED_CLAIM_INTERVAL", 1.0, setting_values.interval, "E019", "1"),
    Option("LISTEN_DATABASE", None, setting_values.database_alias, "E020", '"default"'),
    Option("BATCH_SIZE", 1, setting_values.count, "E021", "100"),
    Option("BATCH_SECONDS", 0.1, setting_values.interval_or_zero, "E022", "0.1"),
    Option("SHUTDOWN_TIMEOUT", 10.0, setting_values.interval_or_zero, "E015", "10"),
    Option("WORKER_ID", None, setting_values.worker_id, "E016", '"mail-1"'),
    Option("PROCESSES", 1, setting_values.count, "E030", "2"),
    Option("START_METHOD", "spawn", setting_values.start_method, "E031", '"spawn"'),
    Option("MAX_JOBS_PER_PROCESS", None, setting_values.count_or_none, "E032", "10_000"),
    Option("MAX_MEMORY_PER_PROCESS", None, setting_values.count_or_none, "E033", "500"),
    Option("MAX_CRASHES", 3, setting_values.count, "E034", "3"),
    Option("HEARTBEAT_FILE", None, setting_values.path, "E035", '"/run/shop/worker.heartbeat"'),
    Option("RECORD_ATTEMPTS", "failures", setting_values.record_attempts, "E036", '"all"'),
    Option("TIME_LIMIT", None, setting_values.interval_or_none, "E037", "timedelta(minutes=10)"),
    Option("TIME_LIMIT_GRACE", 10.0, setting_values.interval_or_zero, "E038", "10"),
    Option("TRACING", False, setting_values.tracing, "E025", "True"),
    Option("IMMEDIATE", False, setting_values.yes_or_no, "E026", "True"),
    Option(
        "RETENTION",
        {},
        setting_values.retention,
        "E023",
        '{"success": timedelta(days=7), "failure": timedelta(days=90)}',
    ),
    Option("METRICS_TOKEN", None, setting_values.token, "E024", 'os.environ["METRICS_TOKEN"]', is_secret=True),
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
        hint = f"{did_you_mean(str(key), known)}It has {', '.join(sorted(known))}."
        problems.append(Problem("E001", f"PROLETARIAN has no setting {key!r}.", hint))
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


def read_project() -> tuple[Settings, list[Problem]]:
    """What `read` makes of this project's PROLETARIAN, for those who go on with what is right in it."""
    return read(getattr(django_settings, "PROLETARIAN", {}))


def problems() -> list[Problem]:
    """Everything wrong with PROLETARIAN, paths that can't be imported included. Call it when apps are loaded."""
    read_settings, wrong = read_project()
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
    return read_project()[0].tables


@functools.cache
def settings() -> Settings:
    """The settings in force. Raises ImproperlyConfigured, naming every wrong value, if there are any."""
    read_settings, wrong = read_project()
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


@functools.cache
def tracing() -> Tracing | None:
    """What makes spans of what is enqueued and run; None where the TRACING setting is off."""
    if not settings().tracing:
        return None
    from django_proletarian.tracing import Tracing  # noqa: PLC0415 # OpenTelemetry is there only with its extra

    return Tracing()


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
    clock: Callable[[], datetime | None] | None = resolved("CLOCK")
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
        own_queues=own_queues(),
        database=database,
        tables=settings().tables,
        serializer=serializer(),
        find_handler=handler_of,
        tracing=tracing(),
        drain=drain,
        max_jobs=None if max_jobs is None else _read_given("threads", max_jobs, shown_as="max_jobs"),
        **values,
    )


def own_queues() -> frozenset[str]:
    """The queues that the settings and the handlers name: none is another's level, whatever it looks like."""
    handlers = {handler.queue for handler in registered() if handler.queue is not None}
    return frozenset({settings().queue, *settings().queues, *handlers, *_queues_of_tasks()})


def _queues_of_tasks() -> Iterator[str]:
    backends = getattr(django_settings, "TASKS", None)
    for backend in backends.values() if isinstance(backends, Mapping) else ():
        queues = backend.get("QUEUES") if isinstance(backend, Mapping) else None
        yield from (queue for queue in queues or () if isinstance(queue, str))


def queue_and_priority(name: str) -> tuple[str, int]:
    """The queue and the priority of the jobs that are stored under this queue's name."""
    queue, priority = priorities.split(name)
    # Asked for each task, of which most have no priority; to gather the names of all handlers takes longer.
    return (name, 0) if priority and name in own_queues() else (queue, priority)


def levels_of(queues: Iterable[str]) -> tuple[str, ...]:
    """All names under which jobs of `queues` may be stored that have a priority."""
    asked = list(queues)
    own = own_queues().union(asked)
    return tuple(level for queue in asked for level in priorities.levels(queue) if level not in own)


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
    "record_attempts",
    "time_limit",
    "time_limit_grace",
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
        tracing.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_proletarian.conf")
