"""One test for each system check, by id."""

from __future__ import annotations

import os  # noqa: F401 # for an example
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_proletarian import conf

WRONG: list[Any] = [
    pytest.param(
        ["THREADS"],
        "E001",
        "PROLETARIAN is ['THREADS'], not a dict.",
        'PROLETARIAN = {"THREADS": 4}',
        id="E001 no dict",
    ),
    pytest.param({"THREAD": 4}, "E001", "PROLETARIAN has no setting 'THREAD'.", "THREADS", id="E001 unknown key"),
    pytest.param(
        {"JOB_TABLE": 'a"b'}, "E002", "'a\"b', which is not a lower-case table name", '"proletarian.job"', id="E002"
    ),
    pytest.param({"JOB_TABLE": "a.b.c"}, "E002", "'a.b.c', which is not", '"proletarian.job"', id="E002 three parts"),
    pytest.param(
        {"JOB_TABLE": "x" * 64}, "E002", "which is not", '"proletarian.job"', id="E002 too long for PostgreSQL"
    ),
    pytest.param(
        {"ARCHIVED_JOB_TABLE": "Archive"}, "E003", "'Archive', which is not", '"proletarian.archived_job"', id="E003"
    ),
    pytest.param(
        {"JOB_TABLE": "jobs", "ARCHIVED_JOB_TABLE": "jobs"},
        "E003",
        "are both 'jobs'",
        "two names",
        id="E003 twice the same",
    ),
    pytest.param({"QUEUE": ""}, "E004", "'', which is not a queue name", '"proletarian/default"', id="E004"),
    pytest.param({"QUEUES": "mail"}, "E005", "'mail', which is not a list", "[", id="E005"),
    pytest.param({"QUEUES": ["mail", 3]}, "E005", "['mail', 3], which is not a queue name", "[", id="E005 inside"),
    pytest.param({"SERIALIZER": 3}, "E006", "3, which is neither a dotted path nor", "JSONSerializer", id="E006"),
    pytest.param(
        {"SERIALIZER": "no.such.thing"}, "E006", "can't be used: No module named 'no'", "JSONSerializer", id="E006 path"
    ),
    pytest.param(
        {"SERIALIZER": "uuid.uuid4"}, "E006", "can't be used", "JSONSerializer", id="E006 path to something else"
    ),
    pytest.param({"HANDLER": 3}, "E007", "3, which is neither a dotted path nor a function", "handle_job", id="E007"),
    pytest.param({"HANDLER": "os.nothing"}, "E007", "can't be used", "handle_job", id="E007 path"),
    pytest.param(
        {"RETRY_STRATEGY": {"retries": -1}}, "E008", "retries must be a whole number", '"retries": 3', id="E008"
    ),
    pytest.param({"FAILED_JOB": 3}, "E009", "neither a dotted path nor a function", "tell_somebody", id="E009"),
    pytest.param(
        {"ON_POLLING_ERROR": 3}, "E010", "neither a dotted path nor a function", "on_polling_error", id="E010"
    ),
    pytest.param({"ON_SHUTDOWN": 3}, "E011", "neither a dotted path nor a function", "on_shutdown", id="E011"),
    pytest.param({"CLOCK": "12:00"}, "E012", "can't be used", "shop.clock.now", id="E012"),
    pytest.param({"THREADS": 0}, "E013", "0, which is not a whole number from 1 up", "4", id="E013"),
    pytest.param({"THREADS": True}, "E013", "True, which is not a whole number from 1 up", "4", id="E013 no number"),
    pytest.param({"POLLING_INTERVAL": 0}, "E014", "0, which is not above zero", "0.1", id="E014"),
    pytest.param(
        {"POLLING_INTERVAL": "1s"}, "E014", "'1s', which is neither seconds nor a timedelta", "0.1", id="E014 text"
    ),
    pytest.param({"SHUTDOWN_TIMEOUT": -1}, "E015", "-1, which is below zero", "10", id="E015"),
    pytest.param({"WORKER_ID": 3}, "E016", "3, which is not a text", '"mail-1"', id="E016"),
    pytest.param({"IDLE_POLLING_INTERVAL": 0}, "E018", "0, which is not above zero", "1", id="E018"),
    pytest.param({"UNBOUNDED_CLAIM_INTERVAL": 0}, "E019", "0, which is not above zero", "1", id="E019"),
    pytest.param({"LISTEN_DATABASE": "nowhere"}, "E020", "'nowhere', which is not an alias", '"default"', id="E020"),
    pytest.param({"BATCH_SIZE": 0}, "E021", "0, which is not a whole number from 1 up", "100", id="E021"),
    pytest.param({"BATCH_SECONDS": -1}, "E022", "-1, which is below zero", "0.1", id="E022"),
    pytest.param({"PROCESSES": 0}, "E030", "0, which is not a whole number from 1 up", "2", id="E030"),
    pytest.param({"START_METHOD": "vfork"}, "E031", "'vfork', which is none of spawn, fork", "spawn", id="E031"),
    pytest.param({"MAX_JOBS_PER_PROCESS": 0}, "E032", "0, which is not a whole number from 1", "10_000", id="E032"),
    pytest.param({"MAX_MEMORY_PER_PROCESS": 0.5}, "E033", "0.5, which is not a whole number", "500", id="E033"),
    pytest.param({"MAX_CRASHES": 0}, "E034", "0, which is not a whole number from 1 up", "3", id="E034"),
    pytest.param({"HEARTBEAT_FILE": 3}, "E035", "3, which is not a path", "worker.heartbeat", id="E035"),
    pytest.param({"IMMEDIATE": "yes"}, "E026", "'yes', which is neither True nor False", "True", id="E026"),
    pytest.param({"TRACING": "on"}, "E025", "'on', which is neither True nor False", "True", id="E025"),
    pytest.param({"RECORD_ATTEMPTS": True}, "E036", "True, which is none of 'failures', 'all'", '"all"', id="E036"),
    pytest.param({"TIME_LIMIT": 0}, "E037", "0, which is not above zero", "timedelta(minutes=10)", id="E037"),
    pytest.param({"TIME_LIMIT_GRACE": "10"}, "E038", "'10', which is neither seconds nor", "10", id="E038"),
    pytest.param({"METRICS_TOKEN": "secret"}, "E024", "is set to what is not a text of 16", "os.environ", id="E024"),
    pytest.param({"RETENTION": 7}, "E023", "7, which is not a dict", "timedelta(days=7)", id="E023"),
    pytest.param({"RETENTION": {"failed": 7}}, "E023", "has a status 'failed'", "timedelta(days=7)", id="E023 status"),
    pytest.param(
        {"RETENTION": {"success": "7d"}}, "E023", "has '7d' for success", "timedelta(days=7)", id="E023 duration"
    ),
    pytest.param(
        {"RETENTION": {"success": timedelta.max}}, "E023", "leave the status out", "timedelta(days=7)", id="E023 long"
    ),
    pytest.param(
        {"JOB_ID_STRATEGY": 3}, "E017", "3, which is neither a dotted path nor a function", "uuid7", id="E017"
    ),
]


@pytest.mark.parametrize(("given", "check_id", "message", "hint"), WRONG)
def test_a_wrong_setting_is_named_with_a_remedy(given: Any, check_id: str, message: str, hint: str) -> None:
    with override_settings(PROLETARIAN=given):
        [found] = [each for each in run_checks() if str(each.id).startswith("django_proletarian")]
        assert found.id == f"django_proletarian.{check_id}"
        assert message in found.msg
        assert found.hint is not None
        assert hint in found.hint


def test_a_secret_is_not_shown() -> None:
    with override_settings(PROLETARIAN={"METRICS_TOKEN": "secret"}):
        assert "secret" not in str(conf.problems())


def test_every_setting_has_a_check_of_its_own_that_a_test_shows() -> None:
    shown = {parameters.values[1] for parameters in WRONG}
    assert {option.check_id for option in conf.OPTIONS} <= shown
    assert len({option.check_id for option in conf.OPTIONS}) == len(conf.OPTIONS)


@pytest.mark.parametrize("option", conf.OPTIONS, ids=lambda option: option.key)
def test_the_example_in_a_hint_is_a_value_that_would_do(option: conf.Option, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRICS_TOKEN", "0123456789abcdef")
    value = eval(option.example)
    assert option.read(value) is not None


def test_all_wrong_settings_are_told_at_once_when_one_is_needed() -> None:
    with override_settings(PROLETARIAN={"THREADS": 0, "QUEUE": ""}):
        with pytest.raises(ImproperlyConfigured, match=r"QUEUE.*THREADS|THREADS.*QUEUE"):
            conf.settings()
        assert len([each for each in run_checks() if str(each.id).startswith("django_proletarian")]) == 2


def test_a_project_without_the_setting_has_the_originals_defaults() -> None:
    settings = conf.settings()
    assert (settings.polling_interval, settings.threads, settings.shutdown_timeout) == (0.1, 1, 10)
    assert (settings.queue, settings.retry_strategy) == ("proletarian/default", None)
    assert (settings.job_table, settings.archived_job_table) == ("proletarian.job", "proletarian.archived_job")


class Router:
    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "sqlite" if model._meta.app_label == "django_proletarian" else None


@override_settings(DATABASE_ROUTERS=[Router()])
def test_w001_jobs_would_go_to_a_database_that_is_not_postgresql() -> None:
    [found] = [each for each in run_checks() if each.id == "django_proletarian.W001"]
    assert '"sqlite", which is sqlite' in found.msg
    assert "DATABASE_ROUTERS" in str(found.hint)
