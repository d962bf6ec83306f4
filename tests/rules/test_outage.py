"""Which errors pass, and which of a worker's threads says that the database is away, or back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, OperationalError

from django_proletarian.outage import LONGEST_PAUSE, Outage, is_permanent, is_transient, pauses

InThread = Callable[[Callable[[], bool]], bool]


def wrapped(error: psycopg.Error, kind: type[DatabaseError] = DatabaseError) -> DatabaseError:
    """`error` as Django raises it."""
    django_error = kind(str(error))
    django_error.__cause__ = error
    return django_error


@pytest.mark.parametrize(
    ("error", "permanent", "transient"),
    [
        pytest.param(psycopg.OperationalError("gone"), False, True, id="a lost connection"),
        pytest.param(OperationalError("gone"), False, True, id="a lost connection, Django's"),
        pytest.param(InterfaceError("closed"), False, True, id="a closed connection"),
        pytest.param(psycopg.errors.AdminShutdown(), False, True, id="a server that stops"),
        pytest.param(psycopg.errors.SerializationFailure(), False, True, id="a serialization failure"),
        pytest.param(psycopg.errors.DeadlockDetected(), False, True, id="a deadlock"),
        pytest.param(psycopg.errors.ReadOnlySqlTransaction(), False, True, id="a standby"),
        pytest.param(psycopg.errors.UndefinedTable(), True, False, id="a missing table"),
        pytest.param(wrapped(psycopg.errors.UndefinedTable()), True, False, id="a missing table, Django's"),
        pytest.param(psycopg.errors.InvalidSchemaName(), True, False, id="a missing schema"),
        pytest.param(psycopg.errors.InsufficientPrivilege(), True, False, id="a missing right"),
        pytest.param(
            wrapped(psycopg.errors.InvalidCatalogName(), OperationalError), True, False, id="a missing database"
        ),
        pytest.param(ImproperlyConfigured(), True, False, id="a wrong setting"),
        pytest.param(psycopg.errors.DiskFull(), False, True, id="a full disk"),
        pytest.param(ValueError(), False, False, id="anything else"),
        pytest.param(KeyboardInterrupt(), False, False, id="no exception"),
    ],
)
def test_what_passes_and_what_stays(error: BaseException, permanent: bool, transient: bool) -> None:
    assert (is_permanent(error), is_transient(error)) == (permanent, transient)


def test_pauses_double_to_a_limit() -> None:
    found = list(islice(pauses(), 20))
    longest = [min(0.1 * 2**number, LONGEST_PAUSE) for number in range(20)]
    assert all(limit / 2 <= pause <= limit for pause, limit in zip(found, longest, strict=True))


@pytest.fixture
def one() -> Iterator[InThread]:
    """Run a function in a thread, the same each time."""
    with ThreadPoolExecutor(1) as executor:
        yield lambda function: executor.submit(function).result(20)


@pytest.fixture
def another() -> Iterator[InThread]:
    with ThreadPoolExecutor(1) as executor:
        yield lambda function: executor.submit(function).result(20)


def test_the_first_thread_that_notices_says_so(one: InThread, another: InThread) -> None:
    outage = Outage()
    assert not one(outage.ended)
    assert one(outage.began)
    assert not one(outage.began)
    assert not another(outage.began)
    assert one(outage.ended)
    assert not one(outage.ended)
    assert not another(outage.ended)


def test_each_outage_is_told(one: InThread) -> None:
    outage = Outage()
    assert [one(outage.began), one(outage.ended), one(outage.began), one(outage.ended)] == [True] * 4


def test_a_thread_that_slept_through_an_outage_does_not_tell_it_again(one: InThread, another: InThread) -> None:
    outage = Outage()
    another(outage.ended)
    one(outage.began)
    one(outage.ended)
    assert not another(outage.began)
    # The next failure is one of its own time.
    assert another(outage.began)


def test_an_answer_from_before_an_outage_does_not_end_it(one: InThread, another: InThread) -> None:
    outage = Outage()
    another(outage.ended)
    one(outage.began)
    assert not another(outage.ended)
    assert another(outage.ended)
