"""What Django promises of any backend with these capabilities."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

from django_proletarian.models import Job
from django_proletarian.tasks import ProletarianBackend, ProletarianTask, task
from django_proletarian.tasks.framework import (
    InvalidTask,
    Task,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from tests.app import tasks

BACKEND = "django_proletarian.tasks.ProletarianBackend"
LOGGER = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
pytestmark = pytest.mark.django_db


@contextmanager
def settings_of_tasks(**values: Any) -> Iterator[None]:
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], **values}}):
        yield


def made(**fields: Any) -> Task:
    """A task whose function is `add`, made as the decorator does, and so validated."""
    return replace(tasks.add, **fields)


def test_the_backend_can_do_all_that_django_knows_of() -> None:
    backend = task_backends["default"]
    assert isinstance(backend, ProletarianBackend)
    assert backend.supports_defer is backend.supports_async_task is True
    assert backend.supports_get_result is backend.supports_priority is True


@pytest.mark.parametrize("how", ["enqueue", "aenqueue"])
def test_an_enqueued_task_is_ready_and_has_no_value_yet(how: str) -> None:
    enqueue = getattr(tasks.add, how)
    result = async_to_sync(enqueue)(1, b=2) if how == "aenqueue" else enqueue(1, b=2)
    assert result.status == TaskResultStatus.READY
    assert not result.is_finished
    assert (result.task, result.args, result.kwargs) == (tasks.add, [1], {"b": 2})
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts, result.backend) == ([], [], 0, "default")
    assert timezone.is_aware(result.enqueued_at)
    with pytest.raises(ValueError, match="Task has not finished yet"):
        result.return_value  # noqa: B018
    [job] = Job.objects.all()
    assert str(job.job_id) == result.id
    assert (job.job_type, job.queue) == ("tests.app.tasks/add", "proletarian/default")


def test_the_row_is_what_a_clojure_program_can_read() -> None:
    tasks.note.enqueue({"a b": 1}, order_id=42)
    [job] = Job.objects.all()
    assert job.queue == "mail+10"
    assert job.payload_text == (
        '["^ ","~:django.tasks/args",[["^ ","~:a b",1]],"~:django.tasks/kwargs",["^ ","~:order_id",42],'
        '"~:django.tasks/backend","default"]'
    )


def test_a_task_commits_or_vanishes_with_the_callers_transaction() -> None:
    with transaction.atomic():
        kept = tasks.add.enqueue(1)
    with transaction.atomic():
        lost = tasks.add.enqueue(1)
        transaction.set_rollback(True)
    assert task_backends["default"].get_result(kept.id) == kept
    with pytest.raises(TaskResultDoesNotExist, match=rf"There is no task {lost.id} in database \"default\""):
        task_backends["default"].get_result(lost.id)


@pytest.mark.parametrize("given", [(object(),), ({1: 2},), (float("nan"),), ("\x00",), ("\ud800",)])
def test_arguments_that_no_json_holds_are_refused_before_any_sql(given: Any, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        for call in (lambda: tasks.note.enqueue(*given), lambda: tasks.note.enqueue(named=given)):
            with pytest.raises((TypeError, ValueError), match=r"args\[0\]|kwargs\['named'\]\[0\]"):
                call()


def test_arguments_are_normalised_at_once() -> None:
    result = tasks.note.enqueue((1, 2), b"text", more={"a": (1,)})
    assert (result.args, result.kwargs) == ([[1, 2], "text"], {"more": {"a": [1]}})
    assert task_backends["default"].get_result(result.id) == result


# -- Which tasks can be ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"priority": 101}, "priority must be a whole number between -100 and 100"),
        ({"priority": -101}, "priority must be a whole number"),
        ({"priority": 3.1}, "priority must be a whole number"),
        ({"run_after": datetime(2030, 1, 1)}, "run_after must be an aware datetime"),  # so it is
        ({"takes_context": True}, "first argument of 'context'"),
        ({"func": lambda: None}, r"Queue|module level|defined"),
        ({"queue_name": ""}, "Queue '' can't be a task's"),
        ({"queue_name": "proletarian/default"}, 'that of proletarian/default is "default"'),
        ({"time_limit": -1}, "tests.app.tasks.add: "),
        ({"lease": 0.1}, "tests.app.tasks.add: lease is 0.1, which is not between"),
        ({"lease": 60, "atomic": True}, "tests.app.tasks.add is atomic and has a lease"),
        ({"retry_strategy": {"retries": -1}}, "tests.app.tasks.add: "),
    ],
)
def test_a_task_that_can_not_be_is_refused_when_it_is_declared(fields: Any, message: str) -> None:
    if "func" in fields:
        fields["func"].__qualname__ = "outer.<locals>.inner"
    with pytest.raises(InvalidTask, match=message):
        made(**fields)


def test_queues_that_the_settings_do_not_name_are_refused_also_at_enqueue() -> None:
    with settings_of_tasks(QUEUES=["default"]):
        assert tasks.add.enqueue(1).status == TaskResultStatus.READY
        with pytest.raises(InvalidTask, match="Queue 'mail' is not valid"):
            tasks.note.enqueue()


@pytest.mark.parametrize("whole", [10, 10.0, True])
def test_a_priority_is_a_whole_number_of_any_type(whole: Any) -> None:
    result = made(priority=whole).enqueue(1)
    assert task_backends["default"].get_result(result.id).task.priority == whole


def test_run_after_puts_the_task_off_to_the_microsecond() -> None:
    moment = timezone.now() + timedelta(hours=1, microseconds=7)
    result = tasks.add.using(run_after=moment).enqueue(1)
    [job] = Job.objects.all()
    assert job.process_at == moment
    assert task_backends["default"].get_result(result.id).task.run_after == moment


# -- Tasks as values -------------------------------------------------------------------------------------------------


def test_using_makes_another_task_and_leaves_the_first() -> None:
    other = tasks.add.using(priority=5, queue_name="other")
    assert (tasks.add.priority, tasks.add.queue_name) == (0, "default")
    assert (other.priority, other.queue_name, other.func) == (5, "other", tasks.add.func)
    assert isinstance(other, ProletarianTask)
    kept = tasks.succeed_at.using(priority=1)
    assert kept.retry_strategy == tasks.succeed_at.retry_strategy


def test_a_task_can_be_called() -> None:
    assert tasks.add.call(1, b=2) == 3
    assert tasks.add_later.call(1, 2) == 3
    assert async_to_sync(tasks.add_later.acall)(1, 2) == 3


@pytest.mark.parametrize("original", [tasks.add, tasks.note, tasks.succeed_at, tasks.add.using(priority=4)])
def test_tasks_and_their_results_can_be_pickled(original: Any) -> None:
    copy = pickle.loads(pickle.dumps(original))
    assert copy == original
    assert copy.func is original.func
    result = original.enqueue(1)
    assert pickle.loads(pickle.dumps(result)) == result


def test_a_pickled_task_that_is_none_any_more_is_an_error() -> None:
    text = pickle.dumps(tasks.add, 0).replace(b"tests.app.tasks.add", b"tests.app.tasks.plain")
    with pytest.raises(ValueError, match=r"Expected 'tests\.app\.tasks\.plain' to point to a Task instance"):
        pickle.loads(text)


def test_our_decorator_leaves_our_options_out_for_another_backend() -> None:
    dummy = f"{Task.__module__.removesuffix('.base')}.backends.dummy.DummyBackend"
    with override_settings(TASKS={"default": {"BACKEND": dummy, "QUEUES": []}}):
        declared = task(tasks.plain, retry_strategy={"retries": 3}, priority=4)
        assert type(declared) is Task
        assert declared.priority == 4
    with pytest.raises(TypeError, match=r"task\(\) has no option 'retry'\. It has retry_strategy, "):
        task(tasks.plain, retry=3)


# -- Results by id ---------------------------------------------------------------------------------------------------


def test_a_result_is_found_by_its_id_and_belongs_to_its_task() -> None:
    result = tasks.add.enqueue(1)
    assert tasks.add.get_result(result.id) == result
    assert async_to_sync(tasks.add.aget_result)(result.id) == result
    with pytest.raises(Exception, match="Task does not match"):
        tasks.note.get_result(result.id)


@pytest.mark.parametrize("bad", ["", "123", "not-a-uuid", "5f3c1a52-3b1e-4a8e-9d0c-0a1b2c3d4e5f", None, "\x00", 7])
def test_an_id_of_no_task_is_no_other_error(bad: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(bad)


def test_a_plain_job_is_no_task() -> None:
    from django_proletarian import enqueue

    job_id = enqueue("shop/mail", {"args": []})
    with pytest.raises(TaskResultDoesNotExist, match=rf"Job {job_id}, of type shop/mail, is no task"):
        task_backends["default"].get_result(str(job_id))


def test_refresh_tells_when_the_row_is_gone() -> None:
    result = tasks.add.enqueue(1)
    result.refresh()
    async_to_sync(result.arefresh)()
    assert result.status == TaskResultStatus.READY
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM proletarian.job")
    with pytest.raises(TaskResultDoesNotExist, match="RETENTION or proletarian_prune has deleted its row"):
        result.refresh()


# -- Signals and logs ------------------------------------------------------------------------------------------------


def test_enqueue_sends_its_signal_from_the_backend_and_no_receiver_can_stop_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[Any] = []

    def hear(sender: Any, task_result: Any, **kwargs: Any) -> None:
        heard.append((sender, task_result))
        raise RuntimeError("a receiver's own")

    task_enqueued.connect(hear)
    try:
        with caplog.at_level(logging.DEBUG, LOGGER):
            result = tasks.add.enqueue(1)
    finally:
        task_enqueued.disconnect(hear)
    assert heard == [(ProletarianBackend, result)]
    assert f"Task id={result.id} path=tests.app.tasks.add enqueued backend=default" in caplog.messages


# -- Settings --------------------------------------------------------------------------------------------------------


def found(**values: Any) -> dict[str, Any]:
    with settings_of_tasks(**values):
        return {problem.id.removeprefix("django_proletarian."): problem for problem in task_backends["default"].check()}


def test_right_settings_pass_and_no_database_is_asked(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert found() == {}
        assert found(QUEUES=["default", "mail"], OPTIONS={"STORE_RESULTS": False, "DATABASE": "other"}) == {}


@override_settings(INSTALLED_APPS=["django.contrib.contenttypes"])
def test_e040_the_app_is_not_installed() -> None:
    assert "not in INSTALLED_APPS" in found()["E040"].msg


@pytest.mark.parametrize("queue", ["", "proletarian/default", 7, "a\x00"])
def test_e041_a_queue_that_can_not_be(queue: object) -> None:
    said = found(QUEUES=["mail", queue])["E041"]
    assert repr(queue) in said.msg
    assert '"QUEUES": ["default", "mail"]' in said.hint


def test_e042_an_option_that_is_none() -> None:
    assert "has no option 'STORE_RESULT'" in found(OPTIONS={"STORE_RESULT": False})["E042"].msg
    assert 'Did you mean "STORE_RESULTS"?' in found(OPTIONS={"STORE_RESULT": False})["E042"].hint
    assert "is [], not a dict" in found(OPTIONS=[])["E042"].msg


def test_e043_store_results_is_neither_true_nor_false() -> None:
    assert "['STORE_RESULTS'] is 'no', neither True nor False" in found(OPTIONS={"STORE_RESULTS": "no"})["E043"].msg


@pytest.mark.parametrize("database", ["sqlite", "nowhere", 7])
def test_e044_a_database_that_holds_no_jobs(database: object) -> None:
    said = found(OPTIONS={"DATABASE": database})["E044"]
    assert repr(database) in said.msg
    assert "DATABASES has default, other, sqlite" in said.hint


def test_a_backend_that_is_not_there_is_djangos_error() -> None:
    with override_settings(TASKS={"default": {"BACKEND": "no.such.Backend"}}), pytest.raises(ImproperlyConfigured):
        task_backends["default"]


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_option_says_where_tasks_are() -> None:
    with settings_of_tasks(OPTIONS={"DATABASE": "other"}):
        result = tasks.add.enqueue(1)
        assert tasks.add.get_result(result.id) == result
        assert Job.objects.using("other").count() == 1
        assert Job.objects.using("default").count() == 0
