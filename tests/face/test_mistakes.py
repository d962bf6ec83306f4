"""What people do wrong with a job queue, each answered by a message that says what to do instead.

Wrong settings are in test_checks, and what a deployment lacks in test_deployment_checks.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.core.exceptions import SynchronousOnlyOperation
from django.core.management import CommandError, call_command
from django.db import DatabaseError, ProgrammingError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.http import QueryDict
from django.test import override_settings

from django_proletarian import (
    EnqueueError,
    InvalidHandler,
    InvalidRetryStrategy,
    RetryStrategy,
    aenqueue,
    create_queue_worker,
    enqueue,
    enqueue_many,
    job_handler,
)
from django_proletarian.handlers import no_handler
from django_proletarian.models import JobAttempt
from tests.app.models import Entry
from tests.conftest import rows
from tests.scratch import Scratch


@dataclass
class Receipt:
    number: int


def plain_function(payload: object) -> None: ...


def said_by(call: Callable[[], object], kind: type[BaseException] = EnqueueError) -> str:
    """The message of the error that `call` ends with, notes beneath it included."""
    with pytest.raises(kind) as caught:
        call()
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


# -- Enqueueing: each is told before any SQL is sent, which pytest-django would refuse here ---------------------------


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        pytest.param({"order": Entry(pk=1)}, 'payload["order"]: a Entry is a model instance', id="a model instance"),
        pytest.param({"order": Entry(pk=1)}, "pass its primary key, instance.pk", id="a model instance, the remedy"),
        pytest.param({"orders": Entry.objects}, "values_list('pk', flat=True)", id="a manager"),
        pytest.param({"orders": Entry.objects.none()}, "pass a list of keys", id="a queryset"),
        pytest.param({"receipt": Receipt(3)}, "pass dataclasses.asdict(instance)", id="a dataclass"),
        pytest.param(QueryDict("to=a&to=b"), "querydict.lists()", id="request.POST"),
        pytest.param({"at": datetime(2026, 1, 1)}, 'payload["at"]: a naive datetime', id="a naive datetime"),
        pytest.param(
            {"at": time(12, tzinfo=ZoneInfo("Europe/Oslo"))},
            'payload["at"]: a time with a zone',
            id="a time with a zone",
        ),
        pytest.param({"lines": (n for n in (1, 2))}, "pass list(...) or dict(...) of it", id="a generator"),
        pytest.param({"file": io.StringIO()}, "pass list(...) or dict(...) of it", id="an open file"),
        pytest.param({"then": plain_function}, "a function can't be written as Transit", id="a function"),
    ],
)
def test_a_payload_that_no_row_can_hold(payload: object, says: str) -> None:
    assert says in said_by(lambda: enqueue("shop/mail", payload))


@pytest.mark.django_db
def test_a_timedelta_in_a_payload_is_no_mistake() -> None:
    enqueue("shop/mail", {"wait": timedelta(minutes=5)})
    [row] = rows("proletarian.job")
    assert 'duration","PT5M' in row["payload"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        pytest.param(
            lambda: enqueue("shop/mail", process_at=datetime(2026, 1, 1)),
            "process_at 2026-01-01T00:00:00 has no time zone. Give an aware datetime",
            id="a naive process_at",
        ),
        pytest.param(
            lambda: enqueue("shop/mail", process_at=timedelta(hours=1)),  # type: ignore[arg-type]
            "For a delay give process_in",
            id="a delay as process_at",
        ),
        pytest.param(
            lambda: enqueue("shop/mail", process_in="5m"),  # type: ignore[arg-type]
            "process_in must be a timedelta, not '5m'. For seconds: timedelta(seconds=5)",
            id="a text where a timedelta is expected",
        ),
        pytest.param(
            lambda: enqueue(plain_function, {"id": 1}),  # type: ignore[arg-type]
            "Decorate the function with @job_handler",
            id="a function that is not decorated",
        ),
        pytest.param(
            lambda: enqueue(plain_function({"id": 1})),  # type: ignore[arg-type,func-returns-value]
            "Give the handler itself: enqueue(send_receipt, payload), not what it returns.",
            id="the handler called, instead of named",
        ),
        pytest.param(lambda: enqueue(""), 'job_type is empty. Give it a name such as "shop/mail"', id="no name"),
        pytest.param(
            lambda: enqueue("shop/mail", queue=("a", "b")),  # type: ignore[arg-type]
            "queue must be a str, not ('a', 'b').",
            id="two queues",
        ),
        pytest.param(lambda: enqueue("shop/mail", job_id="17"), "job_id '17' is no UUID", id="an id that is none"),
        pytest.param(
            lambda: enqueue("shop/mail", on_conflict="skip"),  # type: ignore[arg-type]
            'on_conflict must be "error" or "ignore", not \'skip\'',
            id="a rule that does not exist",
        ),
        pytest.param(lambda: enqueue("shop\x00mail"), "NUL character", id="a NUL in a name"),
        pytest.param(
            lambda: enqueue("shop/mail", using="sqlite"), "jobs live in PostgreSQL only. Give using=", id="on sqlite"
        ),
        pytest.param(
            lambda: enqueue("shop/mail", using="defualt"),
            'There is no database "defualt". Did you mean "default"? DATABASES has: default, other, sqlite.',
            id="a misspelt alias",
        ),
        pytest.param(
            lambda: enqueue_many([{"job_type": "shop/mail"}]),  # type: ignore[list-item]
            "takes NewJob(...)s or (job_type, payload) tuples, and was given a dict",
            id="a list of dicts",
        ),
        pytest.param(
            lambda: enqueue_many("shop/mail"),  # type: ignore[arg-type]
            "One job is enqueued with enqueue.",
            id="one job where many are expected",
        ),
    ],
)
def test_an_argument_of_enqueue_that_cannot_be(call: Callable[[], object], says: str) -> None:
    assert says in said_by(call)


def test_w001_sqlite_as_the_default_database(settings: Any) -> None:
    class ToSqlite:
        def db_for_write(self, model: Any, **hints: Any) -> str | None:
            return "sqlite" if model._meta.app_label == "django_proletarian" else None

    settings.DATABASE_ROUTERS = [ToSqlite()]
    [warning] = [each for each in run_checks() if each.id == "django_proletarian.W001"]
    assert 'Jobs would go to database "sqlite", which is sqlite' in warning.msg
    assert 'Database "sqlite" is sqlite, and jobs live in PostgreSQL only' in said_by(lambda: enqueue("shop/mail"))


# -- At the wrong time or in the wrong place --------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("many", [1, 5000], ids=["enqueue", "enqueue_many, as a COPY"])
def test_migrate_was_forgotten(many: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE proletarian.job RENAME TO was_job")

    def call() -> None:
        if many == 1:
            enqueue("shop/mail")
        else:
            enqueue_many([("shop/mail", None)] * many)

    said = said_by(call, ProgrammingError)
    assert "manage.py migrate django_proletarian --database default" in said


@pytest.mark.django_db
def test_other_programming_errors_get_no_such_advice() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE proletarian.job DROP COLUMN attempts")
    assert "migrate" not in said_by(lambda: enqueue("shop/mail"), ProgrammingError)


@pytest.mark.django_db
def test_enqueue_after_an_error_was_swallowed_inside_the_transaction() -> None:
    def call() -> None:
        with transaction.atomic():
            try:
                with transaction.atomic(savepoint=False):
                    raise ValueError
            except ValueError:
                pass
            enqueue("shop/mail")

    assert "can't execute queries until the end of the 'atomic' block" in said_by(call, TransactionManagementError)


@pytest.mark.django_db
def test_enqueue_in_a_transaction_that_postgresql_has_given_up() -> None:
    def call() -> None:
        with transaction.atomic():
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1/0")
            except DatabaseError:
                pass
            enqueue("shop/mail")

    assert "current transaction is aborted" in said_by(call, DatabaseError)


@pytest.mark.django_db
def test_enqueue_called_from_a_coroutine() -> None:
    async def view() -> None:
        enqueue("shop/mail")

    said = said_by(lambda: asyncio.run(view()), SynchronousOnlyOperation)
    assert "await aenqueue(...)" in said


def test_an_async_enqueue_that_is_never_awaited() -> None:
    forgotten = [aenqueue("shop/mail")]
    with pytest.warns(RuntimeWarning, match="coroutine 'aenqueue' was never awaited"):
        forgotten.clear()


def test_enqueue_at_the_top_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "ready", False)
    monkeypatch.setattr(apps, "models_ready", False)
    assert "Enqueue in a view, a command, a signal or a handler" in said_by(lambda: enqueue("shop/mail"))


@pytest.mark.django_db
def test_enqueue_in_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as starting:
        starting.setattr(apps, "ready", False)
        with pytest.warns(RuntimeWarning, match=r"enqueued in an AppConfig\.ready\(\).*every manage\.py") as warned:
            enqueue("shop/mail")
    assert {warning.filename for warning in warned} >= {__file__}
    assert len(rows("proletarian.job")) == 1  # as Django, which warns of queries there and sends them


def test_the_app_is_not_installed(scratch: Scratch) -> None:
    scratch.configure("INSTALLED_APPS = []\n")
    said = scratch.python(
        "from django_proletarian import EnqueueError, enqueue\n"
        "try:\n    enqueue('shop/mail')\nexcept EnqueueError as error:\n    print(error)"
    )
    assert 'Add "django_proletarian" to INSTALLED_APPS' in said


# -- Handlers ---------------------------------------------------------------------------------------------------------


def test_a_lambda_as_a_handler() -> None:
    said = said_by(lambda: job_handler(lambda payload: None), InvalidHandler)
    assert 'Give it one: @job_handler("shop/mail").' in said


def test_two_handlers_of_one_name() -> None:
    @job_handler("shop/mail")
    def first(payload: object) -> None: ...

    def second(payload: object) -> None: ...

    said = said_by(lambda: job_handler("shop/mail")(second), InvalidHandler)
    assert 'Job type "shop/mail" is handled by tests.face.test_mistakes.' in said
    assert '@job_handler("another/name")' in said


def no_argument() -> None: ...
def two_arguments(order_id: int, email: str) -> None: ...
def keyword_only(*, order_id: int) -> None: ...


@pytest.mark.parametrize("function", [no_argument, two_arguments, keyword_only])
def test_a_handler_with_the_wrong_signature(function: Callable[..., Any]) -> None:
    said = said_by(lambda: job_handler(function), InvalidHandler)
    assert f"test_mistakes.{function.__name__} takes (" in said
    assert "is called with its payload. A handler takes one argument, the payload" in said


def test_a_method_as_a_handler() -> None:
    def declare() -> None:
        class Order:
            @job_handler("shop/mail")
            def send(self, payload: object) -> None: ...

    assert "takes (self, payload: 'object') -> 'None'" in said_by(declare, InvalidHandler)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda payload: None, id="one"),
        pytest.param(lambda payload, dry_run=False: None, id="one and a default"),
        pytest.param(lambda *args, **kwargs: None, id="any"),
        pytest.param(print, id="written in C"),
        pytest.param(max, id="in C, without a signature"),
        pytest.param(Receipt, id="a class"),
    ],
)
def test_every_signature_that_takes_a_payload_will_do(function: Callable[..., Any]) -> None:
    job_handler("shop/mail")(function)


def test_a_handler_decorated_twice_and_a_decorator_on_no_function() -> None:
    handler = job_handler("shop/mail")(plain_function)
    assert "goes on a function, not on" in said_by(lambda: job_handler("shop/post")(handler), InvalidHandler)
    assert "goes on a function, not on 3" in said_by(lambda: job_handler("shop/post")(3), InvalidHandler)  # type: ignore[arg-type]


def test_retries_and_delays_as_texts() -> None:
    said = said_by(lambda: RetryStrategy(retries="3"), InvalidRetryStrategy)  # type: ignore[arg-type]
    assert "retries must be a whole number from 0 up, not '3'" in said
    said = said_by(lambda: RetryStrategy(3, ["1s"]), InvalidRetryStrategy)  # type: ignore[list-item]
    assert "a delay must be seconds or a timedelta" in said


def test_a_retry_strategy_with_a_misspelt_key() -> None:
    said = said_by(lambda: job_handler("a/b", retry_strategy={"retrys": 3})(plain_function), InvalidRetryStrategy)
    assert 'the map {"retries": 3, "delays": [1, 5]}' in said


def test_a_job_type_that_is_misspelt() -> None:
    @job_handler("billing/charge-card")
    def charge(payload: object) -> None: ...

    assert 'job type "billing/charge_card". Did you mean "billing/charge-card"?' in str(
        no_handler("billing/charge_card")
    )


def test_a_handler_that_nothing_has_imported() -> None:
    assert "tests.app.mails" not in sys.modules
    said = str(no_handler("tests.app.mails/send_receipt"))
    assert "Its name says that it is in tests.app.mails, which nothing has imported." in said
    assert "in the jobs.py of an app in INSTALLED_APPS" in said
    assert "nothing has imported" not in str(no_handler("clojure.service/ship"))


@pytest.mark.usefixtures("committed")
def test_a_job_without_a_handler_is_archived_with_that_message() -> None:
    enqueue("tests.app.mails/send_receipt")
    call_command("proletarian_worker", "--drain")
    assert "which nothing has imported" in JobAttempt.objects.get().message


def test_an_import_error_in_a_jobs_module_is_shown(scratch: Scratch) -> None:
    scratch.configure('INSTALLED_APPS = ["django_proletarian", "shop"]\n')
    scratch.write("shop/__init__.py", "")
    scratch.write("shop/jobs.py", "from shop.receipts import send\n")
    said = scratch.manage("check", exit_code=1)
    assert "No module named 'shop.receipts'" in said
    assert 'shop/jobs.py", line 1' in said


# -- Settings ---------------------------------------------------------------------------------------------------------


def no_parameters() -> None: ...


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"RETRY_STRATGY": {"retries": 3}}, 'Did you mean "RETRY_STRATEGY"?'),
        ({"threads": 4}, 'Did you mean "THREADS"?'),
        ({"THREADS": "4"}, "PROLETARIAN['THREADS'] is '4', which is not a whole number from 1 up"),
        ({"POLLING_INTERVAL": "1s"}, "which is neither seconds nor a timedelta"),
        ({"RETENTION": {"failure": "90 days"}}, "which is no timedelta"),
        ({"HANDLER": no_parameters}, "takes () -> 'None', and is called with its type and its payload"),
        ({"HANDLER": "tests.face.test_mistakes.no_parameters"}, "called with its type and its payload"),
        ({"FAILED_JOB": no_parameters}, "is called with the job and its error"),
        ({"RETRY_STRATEGY": no_parameters}, "is called with the job and its error"),
        ({"ON_POLLING_ERROR": no_parameters}, "is called with the error"),
        ({"ON_SHUTDOWN": plain_function}, "is called without arguments"),
        ({"JOB_ID_STRATEGY": plain_function}, "is called without arguments"),
        ({"CLOCK": plain_function}, "is called without arguments"),
    ],
)
def test_a_setting_that_cannot_be(given: dict[str, object], says: str) -> None:
    with override_settings(PROLETARIAN=given):
        [found] = [each for each in run_checks() if str(each.id).startswith("django_proletarian.")]
    assert says in f"{found.msg} {found.hint}"


@pytest.mark.parametrize(
    ("settings", "missing", "says"),
    [
        (
            'PROLETARIAN = {"TRACING": True}\n',
            "opentelemetry",
            'pip install "django-proletarian[tracing]"',
        ),
        (
            'INSTALLED_APPS = ["django_proletarian"]\nROOT_URLCONF = "django_proletarian.urls"\n',
            "prometheus_client",
            'pip install "django-proletarian[metrics]"',
        ),
    ],
    ids=["tracing", "metrics"],
)
def test_an_extra_that_is_not_installed(scratch: Scratch, settings: str, missing: str, says: str) -> None:
    hide = f"import sys; sys.modules[{missing!r}] = None\n"
    if missing == "opentelemetry":  # which is looked for, not imported
        hide = (
            "import importlib.util as util\nfind = util.find_spec\n"
            "util.find_spec = lambda name, *rest: None if name == 'opentelemetry' else find(name, *rest)\n"
        )
    scratch.configure(hide + settings)
    assert says in scratch.manage("check", exit_code=1)


# -- Workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("committed")
def test_a_worker_on_a_queue_that_is_misspelt() -> None:
    job_handler("shop/mail", queue="shop/mail")(plain_function)
    said = io.StringIO()
    call_command("proletarian_worker", "--queue", "shop/mial", "--queue", "clojures", "--drain", stderr=said)
    assert said.getvalue().strip() == ('No handler and no setting names queue shop/mial. Did you mean "shop/mail"?')


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--database", "defualt"], 'There is no database "defualt". Did you mean "default"?'),
        (["--database", "sqlite"], 'Database "sqlite" is sqlite, and jobs live in PostgreSQL only.'),
        (["--threads", "0"], "threads is 0, which is not a whole number from 1 up."),
        (["--processes", "2"], "More than one process needs the supervisor"),
    ],
)
def test_an_option_of_the_worker_that_cannot_be(arguments: list[str], says: str) -> None:
    assert says in said_by(lambda: call_command("proletarian_worker", *arguments), CommandError)


def test_a_worker_of_a_program_with_a_text_as_an_interval() -> None:
    said = said_by(lambda: create_queue_worker(polling_interval="1s"), ValueError)  # type: ignore[arg-type]
    assert said == "polling_interval is '1s', which is neither seconds nor a timedelta."


@pytest.mark.parametrize("command", ["proletarian_status", "proletarian_prune"])
def test_a_command_on_a_database_that_is_misspelt(command: str) -> None:
    more = ["--older-than", "7d"] if command == "proletarian_prune" else []
    said = said_by(lambda: call_command(command, "--database", "othr", *more), CommandError)
    assert said == 'There is no database "othr". Did you mean "other"? DATABASES has: default, other, sqlite.'


def test_pruning_by_a_duration_that_is_none() -> None:
    said = said_by(lambda: call_command("proletarian_prune", "--older-than", "a week"), CommandError)
    assert "Write it as 30d, 12h, 90m or 45s" in said


def test_an_id_that_is_in_the_queue_already_leaves_the_transaction_good(db: None) -> None:
    job_id = uuid4()
    enqueue("shop/mail", job_id=job_id)
    assert 'on_conflict="ignore" to leave it' in said_by(lambda: enqueue("shop/mail", job_id=job_id))
    assert len(rows("proletarian.job")) == 1
