"""Tasks that are run: what their results tell, which signals are sent, and what goes wrong."""

from __future__ import annotations

import copy
import inspect
import logging
import pickle
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from django_proletarian import enqueue, job_handler
from django_proletarian.models import ArchivedJob, Job, JobAttempt
from django_proletarian.tasks import ProletarianBackend, signals
from django_proletarian.tasks.framework import (
    TaskResultStatus,
    task_backends,
    task_finished,
    task_signals,
    task_started,
)
from django_proletarian.tasks.task import JOB_OPTIONS
from django_proletarian.testing import run_jobs
from tests.app import tasks
from tests.app.models import Entry
from tests.tasks.test_contract import LOGGER, settings_of_tasks

pytestmark = pytest.mark.django_db


def run(result: Any) -> Any:
    """Run what is due, and read the result anew."""
    tasks.SEEN.clear()
    run_jobs(raise_errors=False)
    return task_backends["default"].get_result(result.id)


# Fields of a result that tell of its end, or of a moment for which two clocks were asked.
CHANGING = ("status", "started_at", "last_attempted_at", "finished_at", "_return_value")


class Heard:
    """Signals as (name, status at that time, sys.exc_info()[1]), and what came with them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any, Any]] = []
        self.senders: set[Any] = set()
        self.results: list[Any] = []

    def started(self, sender: Any, task_result: Any, **kwargs: Any) -> None:
        self._hear("started", sender, task_result)

    def finished(self, sender: Any, task_result: Any, **kwargs: Any) -> None:
        self._hear("finished", sender, task_result)

    def _hear(self, name: str, sender: Any, result: Any) -> None:
        self.told.append((name, result.status, sys.exc_info()[1]))
        self.senders.add(sender)
        self.results.append(result)
        raise RuntimeError("a receiver that raises")


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = Heard()
    task_started.connect(heard.started)
    task_finished.connect(heard.finished)
    yield heard
    task_started.disconnect(heard.started)
    task_finished.disconnect(heard.finished)


# -- Success ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("called", [tasks.add, tasks.add_later])
def test_a_task_that_returns_is_successful(called: Any) -> None:
    result = run(called.enqueue(1, b=2))
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.is_finished
    assert result.return_value == 3
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert (result.worker_ids, result.attempts, result.errors) == (["run_jobs"], 1, [])


def test_refresh_brings_what_has_happened_since() -> None:
    result = tasks.add.enqueue(1, 2)
    fresh = run(result)
    result.refresh()
    assert result == fresh
    assert result.return_value == 3


def test_arguments_arrive_as_plain_values() -> None:
    run(tasks.note.enqueue({"a": {"b": [1.0, None]}}, "~:x", named="^1"))
    [(args, kwargs)] = tasks.SEEN
    assert (args, kwargs) == (({"a": {"b": [1.0, None]}}, "~:x"), {"named": "^1"})
    assert type(next(iter(args[0]))) is str


def test_a_return_value_is_what_json_makes_of_it() -> None:
    assert run(tasks.give_back.enqueue("tuple")).return_value == [1, [2]]
    assert run(tasks.note.enqueue()).return_value is None


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("object", TypeError, "Unsupported type: <class 'object'>"),
        ("nan", ValueError, "the return value is nan"),
        ("long", ValueError, "characters, and 1,000,000 is the most that is stored"),
    ],
)
def test_a_return_value_that_can_not_be_kept_fails_the_attempt(kind: str, error: Any, message: str) -> None:
    result = run(tasks.give_back.enqueue(kind))
    assert result.status == TaskResultStatus.FAILED
    [told] = result.errors
    assert told.exception_class is error
    assert message in told.traceback


def test_the_context_has_the_result_so_far(heard: Heard) -> None:
    result = tasks.attempt_number.enqueue()
    assert run(result).return_value == 1
    [seen] = tasks.SEEN
    assert seen.id == result.id
    assert (seen.attempts, seen.worker_ids) == (1, ["run_jobs"])


def test_the_signals_are_sent_by_the_backends_class_and_no_receiver_changes_anything(heard: Heard) -> None:
    assert run(tasks.add.enqueue(1)).status == TaskResultStatus.SUCCESSFUL
    assert heard.told == [
        ("started", TaskResultStatus.RUNNING, None),
        ("finished", TaskResultStatus.SUCCESSFUL, None),
    ]
    assert heard.senders == {ProletarianBackend}
    assert heard.results[-1].return_value == 1


class Lines(logging.Filter):
    """Counts the records that reach a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        self.records.append(record.getMessage())
        return True


@pytest.mark.parametrize(("level", "lines"), [(logging.DEBUG, 3), (logging.INFO, 2), (logging.WARNING, 0)])
def test_djangos_log_of_tasks_has_its_lines_at_each_level(level: int, lines: int) -> None:
    log, counter = logging.getLogger(LOGGER), Lines()
    before = log.level
    log.setLevel(level)
    log.addFilter(counter)
    try:
        result = run(tasks.add.enqueue(1))
        assert len(counter.records) == lines
        # Where there would be none, the signal is not even sent.
        assert signals._is_for_a_silent_log(task_started, result) == (lines == 0)
        # What went wrong is told at any.
        run(tasks.fail.enqueue())
        assert "state=FAILED" in counter.records[-1]
    finally:
        log.removeFilter(counter)
        log.setLevel(before)


@pytest.mark.parametrize("sender", [None, ProletarianBackend])
@pytest.mark.parametrize("only", [False, True])
def test_receivers_hear_of_tasks_although_djangos_log_is_silent(sender: Any, only: bool, heard: Heard) -> None:
    log = logging.getLogger(LOGGER)
    before, told = log.level, []
    log.setLevel(logging.CRITICAL)
    task_started.disconnect(heard.started)

    def receive(**kwargs: Any) -> None:
        told.append(kwargs["task_result"].status)

    task_started.connect(receive, sender=sender)
    if only:
        task_started.disconnect(task_signals.log_task_started)
    try:
        run(tasks.add.enqueue(1))
        assert told == [TaskResultStatus.RUNNING]
    finally:
        task_started.disconnect(receive, sender=sender)
        if only:
            task_started.connect(task_signals.log_task_started)
        log.setLevel(before)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda result: pickle.loads(pickle.dumps(result))])
def test_a_result_is_whole_in_every_copy_although_its_fields_are_made_when_asked_for(copied: Any) -> None:
    copies = []

    def receive(task_result: Any, **kwargs: Any) -> None:
        copies.append(copied(task_result))

    task_started.connect(receive)
    try:
        result = run(tasks.add.enqueue(1, b=2))
    finally:
        task_started.disconnect(receive)
    [running] = copies
    assert running == replace(running, errors=[])
    assert running.status == TaskResultStatus.RUNNING
    same = [field.name for field in fields(result) if field.name not in CHANGING]
    assert [getattr(running, name) for name in same] == [getattr(result, name) for name in same]
    assert not hasattr(running, "nothing_of_the_kind")


def test_a_task_that_its_module_has_anew_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tasks.add.enqueue(1, 2)).return_value == 3
    monkeypatch.setattr(tasks, "add", replace(tasks.add, func=tasks.note.func))
    monkeypatch.setattr(tasks.note.func, "__qualname__", "add")
    result = tasks.add.enqueue(1, 2)
    assert run(result).return_value is None
    assert tasks.SEEN == [((1, 2), {})]


@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_a_receiver_that_calls_for_the_end_changes_nothing_either(error: Any) -> None:
    def receive(**kwargs: Any) -> None:
        raise error

    task_finished.connect(receive)
    try:
        assert run(tasks.add.enqueue(1)).status == TaskResultStatus.SUCCESSFUL
    finally:
        task_finished.disconnect(receive)


# -- Failure ---------------------------------------------------------------------------------------------------------


def test_a_task_that_raises_has_failed(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        result = run(tasks.fail.enqueue("so it goes"))
    assert result.status == TaskResultStatus.FAILED
    assert result.is_finished
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018
    [error] = result.errors
    assert error.exception_class is ValueError
    assert "ValueError: so it goes" in error.traceback
    assert "tests/app/tasks.py" in error.traceback
    [(_, _, no_error), (name, status, raised)] = heard.told
    assert (no_error, name, status) == (None, "finished", TaskResultStatus.FAILED)
    assert str(raised) == "so it goes"
    # The traceback is the task's, as if nobody had raised it again.
    assert "signals" not in heard.results[-1].errors[0].traceback
    [record] = [record for record in caplog.records if "state=FAILED" in record.getMessage()]
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert record.exc_info[1] is raised


def test_a_task_that_calls_for_the_end_has_failed(heard: Heard) -> None:
    result = run(tasks.exit_process.enqueue())
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is SystemExit
    assert isinstance(heard.told[-1][2], SystemExit)


def test_twice_failed_and_then_successful_is_three_workers_two_errors_and_one_end(heard: Heard) -> None:
    result = tasks.succeed_at.enqueue(3)
    run_jobs(until_empty=False, raise_errors=False)
    waiting = task_backends["default"].get_result(result.id)
    assert waiting.status == TaskResultStatus.READY
    assert not waiting.is_finished
    assert (waiting.attempts, len(waiting.errors)) == (1, 1)
    done = run(result)
    assert done.return_value == "attempt 3"
    assert len(done.worker_ids) == done.attempts == 3
    assert [error.exception_class for error in done.errors] == [KeyError, KeyError]
    assert done.started_at < done.last_attempted_at < done.finished_at
    assert [name for name, _, _ in heard.told] == ["started", "started", "started", "finished"]
    assert heard.results[-1].worker_ids == ["run_jobs"] * 3
    assert len(heard.results[-1].errors) == 2


def test_an_atomic_task_s_writes_are_undone_with_it() -> None:
    assert run(tasks.write_and_fail.enqueue("text")).status == TaskResultStatus.FAILED
    assert not Entry.objects.exists()


def test_a_task_has_all_options_of_a_job_handler_but_those_that_django_names_otherwise() -> None:
    of_handlers = set(inspect.signature(job_handler).parameters) - {"function_or_type", "queue", "advanced"}
    assert set(JOB_OPTIONS) == of_handlers


def test_a_task_with_a_lease_runs_while_its_row_is_put_off() -> None:
    assert run(tasks.is_put_off.enqueue()).return_value is True


def test_a_task_has_its_time_limit() -> None:
    result = run(tasks.spin.enqueue())
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class.__name__ == "JobTimeout"


# -- Tasks that are gone ---------------------------------------------------------------------------------------------


def rename(old: str, new: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE proletarian.job SET job_type = replace(job_type, %s, %s)", [old, new])


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("tests.app.tasks/gone", "can't be imported (AttributeError"),
        ("tests.app.nowhere/add", "can't be imported (ModuleNotFoundError"),
        ("tests.app.tasks/plain", "tests.app.tasks.plain is a function, not a task, and is not called"),
        ("tests.app.tasks/Holder", "tests.app.tasks.Holder is a type, not a task"),
        ("os/getcwd", "os.getcwd is a builtin_function_or_method, not a task"),
        ("nothing", "can't be imported"),
    ],
)
def test_what_is_no_task_any_more_fails_and_is_never_called(new: str, message: str, heard: Heard) -> None:
    result = tasks.add.enqueue("text", b=2)
    rename("tests.app.tasks/add", new)
    done = run(result)
    assert done.status == TaskResultStatus.FAILED
    assert message in done.errors[0].traceback
    assert tasks.SEEN == []
    # Its result can be read all the same.
    assert (done.args, done.kwargs) == (["text"], {"b": 2})
    assert done.task.module_path == new.replace("/", ".") or new == "nothing"
    assert [name for name, _, _ in heard.told] == ["started", "finished"]


@override_settings(PROLETARIAN={"RETRY_STRATEGY": {"retries": 1, "delays": [0]}})
def test_what_can_not_be_found_is_tried_again_as_the_settings_say() -> None:
    result = tasks.add.enqueue(1)
    rename("tests.app.tasks/add", "tests.app.tasks/gone")
    done = run(result)
    assert (done.attempts, len(done.errors)) == (2, 2)


def test_the_queue_and_the_backend_of_a_result_may_have_gone_from_the_settings() -> None:
    result = tasks.note.enqueue(1)
    with override_settings(TASKS={"new": {"BACKEND": "django_proletarian.tasks.ProletarianBackend", "QUEUES": ["a"]}}):
        read = task_backends["new"].get_result(result.id)
    assert (read.task.queue_name, read.task.priority, read.backend) == ("mail", 10, "new")


def test_a_queue_that_looks_like_a_priority_is_a_queue_if_the_settings_name_it() -> None:
    with settings_of_tasks(QUEUES=["eu-west-1"]):
        result = tasks.add.using(queue_name="eu-west-1").enqueue(1)
        assert task_backends["default"].get_result(result.id).task.queue_name == "eu-west-1"


# -- What is stored --------------------------------------------------------------------------------------------------


@override_settings(PROLETARIAN={"RECORD_ATTEMPTS": "none"})
def test_results_are_stored_whatever_is_recorded_of_jobs() -> None:
    job_handler("tests/pass")(lambda payload: None)
    enqueue("tests/pass")
    assert run(tasks.add.enqueue(1, 2)).return_value == 3
    assert JobAttempt.objects.count() == 1


def test_without_store_results_a_success_leaves_nothing_and_its_value_says_why() -> None:
    with settings_of_tasks(OPTIONS={"STORE_RESULTS": False}):
        result = run(tasks.add.enqueue(1, 2))
        assert result.status == TaskResultStatus.SUCCESSFUL
        with pytest.raises(ValueError, match="The return value was not stored: STORE_RESULTS was off"):
            result.return_value  # noqa: B018
        assert JobAttempt.objects.count() == 0
        stale = tasks.add.enqueue(1)
        run(stale)
        stale.refresh()
        with pytest.raises(ValueError, match="STORE_RESULTS"):
            stale.return_value  # noqa: B018
        failed = run(tasks.fail.enqueue())
        assert failed.errors[0].exception_class is ValueError


def test_a_task_that_is_enqueued_once_more_from_the_archive_counts_its_attempts_anew() -> None:
    result = run(tasks.fail.enqueue())
    [job] = ArchivedJob.objects.all()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO proletarian.job SELECT job_id, queue, job_type, payload, 0, enqueued_at, now() "
            "FROM proletarian.archived_job"
        )
    again = run(result)
    assert job.attempts == again.attempts == 1
    assert len(again.errors) == 1


@override_settings(PROLETARIAN={"IMMEDIATE": True})
def test_immediate_runs_a_task_when_it_is_committed(django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        result = tasks.add.enqueue(1, 2)
    result.refresh()
    assert result.return_value == 3


@override_settings(PROLETARIAN={"SERIALIZER": "django_proletarian.serializers.JSONSerializer"})
def test_tasks_go_with_another_serializer() -> None:
    assert run(tasks.add.enqueue(1, b=2)).return_value == 3


def test_a_plain_jobs_payload_that_names_a_tasks_function_is_no_task() -> None:
    enqueue("tests.app.tasks/add", {"args": [1], "kwargs": {}})
    [ran] = run_jobs(raise_errors=False)
    assert "No handler for job type" in str(ran.error)
    assert not Job.objects.exists()
