"""What became of a task: read from the job's row, wherever it is, and from the records of its attempts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from django.conf import settings as django_settings
from django.db import connections
from django.db.backends.utils import CursorWrapper
from django.utils import timezone

from django_proletarian import conf, names
from django_proletarian.errors import NoHandler, PayloadDecodeError
from django_proletarian.job_states import RunningJob, running_jobs
from django_proletarian.progress import Progress
from django_proletarian.store import as_datetime
from django_proletarian.tables import Tables, for_tables
from django_proletarian.tasks import envelope
from django_proletarian.tasks.envelope import Envelope
from django_proletarian.tasks.framework import (
    TASK_REFRESH_ATTRS,
    BaseTaskBackend,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from django_proletarian.tasks.lookup import as_enqueued, backend_for, find_task, lost_task
from django_proletarian.tasks.naming import queue_name_and_priority
from django_proletarian.tasks.values import normalised

UNKNOWN_WORKER = "unknown"  # stands for a worker that nobody took down


class _MadeWhenAsked(TaskResult):
    """What a result has beside its value: who makes those of its fields that nobody has asked for yet.

    Copies, pickled ones too, have all fields.
    """

    __slots__ = ("_maker",)

    _maker: object

    def __getattr__(self, name: str) -> Any:
        # Called for fields that are not there only.
        if name not in FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        value = getattr(self._maker, name)
        object.__setattr__(self, name, value)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ProletarianResult(_MadeWhenAsked):  # type: ignore[misc] # frozen, which the stubs leave out
    """A task's result, which knows why there may be no return value."""

    # How far it has come, if it runs and tells with `current_job().progress(...)`; as it was a second ago, about.
    progress: Progress | None = field(init=False, default=None, compare=False, repr=False)
    _why_missing: str | None = field(init=False, default=None, compare=False, repr=False)

    @property
    def return_value(self) -> Any:
        """What the task returned. Raises ValueError if it has not, and if that was not stored."""
        if self.status == TaskResultStatus.FAILED:
            raise ValueError("Task failed")
        if self.status != TaskResultStatus.SUCCESSFUL:
            raise ValueError("Task has not finished yet")
        if self._why_missing is not None:
            raise ValueError(self._why_missing)
        return self._return_value

    def refresh(self) -> None:
        """Read it anew. Raises TaskResultDoesNotExist if the job's row is gone, as after RETENTION."""
        self._take(self.task.get_backend().get_result(self.id))

    async def arefresh(self) -> None:
        """`refresh` for coroutines."""
        self._take(await self.task.get_backend().aget_result(self.id))

    def _take(self, fresh: TaskResult) -> None:
        for name in (*TASK_REFRESH_ATTRS, "progress", "_why_missing"):
            change(self, **{name: getattr(fresh, name, None)})


FIELDS = frozenset(field.name for field in fields(ProletarianResult))


def made_when_asked(maker: object) -> ProletarianResult:
    """A result whose fields are attributes of `maker`, each read when somebody first asks: most often nobody does."""
    result = object.__new__(ProletarianResult)
    object.__setattr__(result, "_maker", maker)
    return result


def change(result: TaskResult, **values: object) -> None:
    """Write fields of a result, which is frozen to everybody else."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


# -- Reading ---------------------------------------------------------------------------------------------------------

MAY_READ_ATTEMPTS: LiteralString = "SELECT has_table_privilege(to_regclass('{job_attempt}'), 'SELECT')"
# One statement, and so of one moment: a job that moves to the archive meanwhile is in one of the two.
STORED: LiteralString = """
SELECT queue, job_type, payload, attempts, enqueued_at, NULL AS status, NULL::timestamptz AS finished_at
  FROM {job} WHERE job_id = %(job_id)s
 UNION ALL
SELECT queue, job_type, payload, attempts, enqueued_at, status, finished_at
  FROM {archived_job} WHERE job_id = %(job_id)s
"""
ALONE = """
SELECT stored.*, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM ({stored}) AS stored ORDER BY stored.status NULLS FIRST
"""
# A job that was run again from the archive may be in both: then it is the one in the queue.
WITH_ATTEMPTS = """
SELECT stored.*, attempt.attempt, attempt.worker_id, attempt.started_at, attempt.outcome,
       attempt.exception_class, attempt.traceback, attempt.result
  FROM ({stored}) AS stored
  LEFT JOIN {job_attempt} AS attempt ON attempt.job_id = %(job_id)s
 ORDER BY stored.status NULLS FIRST, attempt.attempt_id
"""


class PastAttempt(NamedTuple):
    """One attempt that counted, as it was recorded."""

    attempt: int
    worker_id: str | None
    started_at: datetime
    outcome: str
    exception_class: str | None
    traceback: str | None
    result: str | None

    def as_error(self) -> TaskError:
        """Its error as Django has it."""
        name = self.exception_class or ""
        return TaskError(
            exception_class_path=name if "." in name else f"builtins.{name}", traceback=self.traceback or ""
        )


class StoredTask(NamedTuple):
    """A task's job as its row has it."""

    queue: str
    job_type: str
    payload: str
    attempts: int
    enqueued_at: datetime
    status: str | None  # None in the queue
    finished_at: datetime | None


def read_result(backend: BaseTaskBackend, database: str, result_id: str) -> TaskResult:
    """The result of the task with this id. Raises TaskResultDoesNotExist if there is no such job, or it is no task."""
    try:
        job_id = UUID(result_id)
    except (ValueError, TypeError, AttributeError) as error:
        raise TaskResultDoesNotExist(f"{result_id!r} is no id of a task: those are UUIDs.") from error
    tables = conf.settings().tables
    with connections[database].cursor() as cursor:
        rows, are_attempts_known = _rows(cursor, tables, job_id)
        if not rows:
            raise TaskResultDoesNotExist(
                f'There is no task {job_id} in database "{database}": its transaction was rolled back, or RETENTION or '
                "proletarian_prune has deleted its row since."
            )
        stored = StoredTask(*rows[0][:7])
        attempts = counted([PastAttempt(*row[7:]) for row in rows if row[5] == stored.status and row[7] is not None])
        running = running_jobs(cursor, tables, [job_id]).get(job_id) if stored.status is None else None
    result = _result(backend, job_id, stored, _envelope_of(stored, job_id))
    _tell_attempts(result, attempts, running)
    if stored.status is not None:
        _tell_end(result, stored, attempts, are_attempts_known)
    return result


def past_attempts(database: str, job_id: UUID) -> list[PastAttempt]:
    """The attempts at a job that are over and counted; none if they are not recorded."""
    with connections[database].cursor() as cursor:
        rows, _ = _rows(cursor, conf.settings().tables, job_id)
    return counted([PastAttempt(*row[7:]) for row in rows if row[5] is None and row[7] is not None])


def _rows(cursor: CursorWrapper, tables: Tables, job_id: UUID) -> tuple[list[tuple[Any, ...]], bool]:
    """The job, once for each of its attempts, and whether those can be known."""
    cursor.execute(for_tables(MAY_READ_ATTEMPTS, tables))
    may_read = cursor.fetchone() == (True,)
    text: Any = (WITH_ATTEMPTS if may_read else ALONE).replace("{stored}", STORED)
    cursor.execute(for_tables(text, tables), {"job_id": job_id})
    return cursor.fetchall(), may_read


def counted(attempts: Sequence[PastAttempt]) -> list[PastAttempt]:
    """The attempts that count: not those that a stop interrupted, nor those before somebody ran the job anew.

    Nor what an attempt has saved, which has a row of its own.
    """
    real = [each for each in attempts if each.outcome not in ("interrupted", "cancelled", "checkpoint")]
    firsts = [place for place, each in enumerate(real) if each.attempt == 1]
    return real[firsts[-1] :] if firsts else real


def _envelope_of(stored: StoredTask, job_id: UUID) -> Envelope:
    try:
        payload = conf.serializer().decode(stored.payload)
    except PayloadDecodeError:
        payload = None
    if not envelope.is_envelope(payload):
        raise TaskResultDoesNotExist(f"Job {job_id}, of type {names.from_stored(stored.job_type)}, is no task.")
    return envelope.read(payload)


def _result(backend: BaseTaskBackend, job_id: UUID, stored: StoredTask, called: Envelope) -> ProletarianResult:
    job_type = names.from_stored(stored.job_type)
    try:
        task = find_task(job_type)
    except NoHandler:
        task = lost_task(job_type)
    queue_name, priority = queue_name_and_priority(names.from_stored(stored.queue))
    alias, _ = backend_for(called.backend, type(backend))
    task = as_enqueued(task, queue_name=queue_name, priority=priority, backend=alias, run_after=called.run_after)
    return ProletarianResult(
        task=task,
        id=str(job_id),
        status=TaskResultStatus.READY,
        enqueued_at=stored.enqueued_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=called.args,
        kwargs=called.kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def _tell_attempts(result: ProletarianResult, attempts: Sequence[PastAttempt], running: RunningJob | None) -> None:
    begun = [attempt.started_at for attempt in attempts]
    workers = [attempt.worker_id or UNKNOWN_WORKER for attempt in attempts]
    if running is not None:
        change(result, status=TaskResultStatus.RUNNING, progress=running.progress)
        # Until the worker's next heartbeat nobody but it knows since when.
        begun += [in_projects_time(running.began_at)] if running.began_at is not None else []
        workers.append(running.worker_id or UNKNOWN_WORKER)
    if begun:
        change(result, started_at=begun[0], last_attempted_at=begun[-1])
    result.worker_ids.extend(workers)
    result.errors.extend(attempt.as_error() for attempt in attempts if attempt.exception_class is not None)


def _tell_end(
    result: ProletarianResult, stored: StoredTask, attempts: Sequence[PastAttempt], are_attempts_known: bool
) -> None:
    succeeded = names.from_stored(stored.status or "") == "success"
    change(
        result,
        status=TaskResultStatus.SUCCESSFUL if succeeded else TaskResultStatus.FAILED,
        finished_at=stored.finished_at,
    )
    if not succeeded:
        return
    last = attempts[-1] if attempts and attempts[-1].outcome == "success" else None
    if last is None:
        change(result, _why_missing=_why_missing(are_attempts_known))
    elif last.result is not None:
        try:
            change(result, _return_value=normalised(conf.serializer().decode(last.result), "the return value"))
        except (PayloadDecodeError, ValueError, TypeError) as error:
            change(result, _why_missing=f"The return value can't be read: {error}")


def _why_missing(are_attempts_known: bool) -> str:
    if not are_attempts_known:
        return (
            "The return value can't be read: there is no table of attempts, or this role may not SELECT from it. Run "
            "migrate, or grant it."
        )
    return (
        "The return value was not stored: STORE_RESULTS was off in the OPTIONS of TASKS where it ran, or the worker "
        "had no right to record attempts; or the record was deleted."
    )


def in_projects_time(moment: datetime) -> datetime:
    """`moment` as Django has it: aware, or with USE_TZ off naive local time."""
    return moment if django_settings.USE_TZ or timezone.is_naive(moment) else timezone.make_naive(moment)


def as_projects_time(moment: datetime | float) -> datetime:
    """`moment`, aware or in seconds since 1970, as Django has it."""
    return in_projects_time(as_datetime(moment) if isinstance(moment, float) else moment.astimezone(UTC))


def now() -> datetime:
    """What stands in results for a moment that the database will date: this host's clock, or the CLOCK setting's."""
    return as_projects_time(conf.now() or time.time())
