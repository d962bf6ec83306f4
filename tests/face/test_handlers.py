"""`@job_handler`: what it registers, and what it refuses."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from django_proletarian import InvalidHandler, InvalidRetryStrategy, Job, JobHandler, RetryStrategy, conf, job_handler
from django_proletarian.errors import EnqueueError
from django_proletarian.handlers import HandlersAttempt, handler_of
from django_proletarian.interrupting import Stop
from django_proletarian.names import PlainName
from tests.scratch import Scratch


@job_handler
def module_level(payload: object) -> str:
    """What it is for."""
    return f"got {payload}"


def test_a_handlers_name_is_its_module_and_function() -> None:
    assert module_level.job_type == "tests.face.test_handlers/module_level"


def test_a_handler_can_still_be_called_and_looks_like_its_function() -> None:
    assert module_level(1) == "got 1"
    assert (module_level.__name__, module_level.__doc__) == ("module_level", "What it is for.")  # type: ignore[attr-defined]


def test_a_handler_may_have_a_name_and_options() -> None:
    @job_handler(
        "billing/charge", queue="billing", retry_strategy={"retries": 1, "delays": [2]}, atomic=True, advanced=True
    )
    def charge(job: Job) -> None: ...

    assert handler_of("billing/charge") is charge
    assert handler_of(":billing/charge") is charge
    assert handler_of(PlainName("billing/charge")) is None
    assert (charge.queue, charge.retry_strategy, charge.atomic, charge.takes) == (
        "billing",
        RetryStrategy(1, [2]),
        True,
        "job",
    )


@job_handler(queue="mail")
def with_options(payload: object) -> None: ...


def test_options_need_no_name() -> None:
    assert (with_options.job_type, with_options.queue) == ("tests.face.test_handlers/with_options", "mail")


def test_a_function_inside_another_needs_a_name() -> None:
    with pytest.raises(InvalidHandler, match="other processes could not find it"):

        @job_handler
        def local(payload: object) -> None: ...


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: job_handler(lambda payload: None), InvalidHandler, "a lambda.*@job_handler"),
        (lambda: job_handler("a")(module_level), InvalidHandler, "goes on a function"),
        (lambda: job_handler("a")(3), InvalidHandler, "goes on a function, not on 3"),  # type: ignore[arg-type]
        (lambda: job_handler("")(len), EnqueueError, "job_type is empty"),
        (lambda: job_handler("a", retry_strategy={"retries": -1})(len), InvalidRetryStrategy, "not -1"),
    ],
)
def test_what_cannot_be_a_handler_is_refused(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make()


def test_a_job_type_has_one_handler() -> None:
    job_handler("a/b")(len)
    with pytest.raises(InvalidHandler, match=r'"a/b" is handled by builtins\.len already'):
        job_handler("a/b")(max)
    job_handler("a/b")(len)  # a module that is imported again


def test_types_without_a_handler_go_to_the_handler_setting(settings: Any) -> None:
    calls = []
    settings.PROLETARIAN = {"HANDLER": lambda job_type, payload: calls.append((job_type, payload))}
    handler = conf.handler_of("any/thing")
    assert handler is not None
    job = Job(job_id=None, queue="q", job_type="any/thing", payload=1, attempts=1, enqueued_at=None, process_at=None)  # type: ignore[arg-type]
    handler.run(cast("HandlersAttempt", SimpleNamespace(payload=1, job=job)), Stop())
    assert calls == [("any/thing", 1)]
    assert isinstance(conf.handler_of("tests.face.test_handlers/module_level"), JobHandler)


def test_a_wrapped_function_has_the_name_of_the_one_inside() -> None:
    @functools.wraps(module_level.function)
    def wrapper(payload: object) -> None: ...

    with pytest.raises(InvalidHandler, match="goes on a function"):
        job_handler(module_level)
    assert job_handler(wrapper).job_type == "tests.face.test_handlers/module_level"


def test_jobs_modules_are_found_and_their_errors_shown(scratch: Scratch) -> None:
    scratch.configure('INSTALLED_APPS += ["shop", "empty"]\n')
    scratch.write("empty/__init__.py", "")
    scratch.write("shop/__init__.py", "")
    scratch.write(
        "shop/jobs.py", "from django_proletarian import job_handler\n\n\n@job_handler\ndef mail(payload): ...\n"
    )
    print_types = "from django_proletarian.handlers import registered; print(*(h.job_type for h in registered()))"
    assert scratch.python(print_types) == "shop.jobs/mail\n"
    scratch.write("shop/jobs.py", "import not_there\n")
    said = scratch.manage("check", exit_code=1)
    assert "No module named 'not_there'" in said
