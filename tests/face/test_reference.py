"""The tables in docs/reference name all there is, and nothing that is not.

A new setting, event, check, exception, option, column or metric has a row there.
"""

from __future__ import annotations

import ast
import inspect
import logging
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class
from django.db import connection

import django_proletarian
from django_proletarian import conf, errors, log, signals
from django_proletarian.tables import Tables
from tests.docs.pages import REPOSITORY, codes, rows

REFERENCE = REPOSITORY / "docs" / "reference"
PACKAGE = REPOSITORY / "django_proletarian"


# -- Settings and checks ---------------------------------------------------------------------------------------------


def test_each_setting_has_a_row_with_its_check() -> None:
    told = {codes(row[0])[0]: row[3] for row in rows(REFERENCE / "settings.md")}
    assert told == {option.key: option.check_id for option in conf.OPTIONS}


def test_each_setting_s_row_begins_with_its_default() -> None:
    for key, _, default, _ in rows(REFERENCE / "settings.md"):
        option = next(option for option in conf.OPTIONS if option.key == codes(key)[0])
        if option.key == "QUEUES":
            assert default == "`[QUEUE]`"
        elif option.default is None:
            assert "None" in default or option.key in ("WORKER_ID", "LISTEN_DATABASE"), default
        else:
            assert ast.literal_eval(codes(default)[0]) == option.default, key


def test_each_check_has_a_row() -> None:
    told = [row[0] for row in rows(REFERENCE / "checks.md")]
    assert sorted(told) == sorted(set(told))
    assert set(told) == check_ids()


def check_ids() -> set[str]:
    """All ids of system checks that the package's strings name."""
    strings = (node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {found for text in strings for found in re.findall(r"(?:^|django_proletarian\.)([EW]\d{3})$", text)}


@cache
def nodes() -> list[ast.AST]:
    """All that the package's modules say, as Python reads it."""
    return [node for module in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(module.read_text()))]


def test_a_check_of_a_setting_names_it() -> None:
    told = {row[0]: row[1] for row in rows(REFERENCE / "checks.md")}
    for option in conf.OPTIONS:
        assert codes(told[option.check_id])[0] == option.key


# -- Events ----------------------------------------------------------------------------------------------------------

EVENTS = {name: event for name, event in vars(log).items() if isinstance(event, log.Event)}


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: event.name)
def test_each_event_has_a_row_with_its_level_and_signal(event: log.Event) -> None:
    row = row_of(event, f"## {event.logger.name}")
    assert row[1] == logging.getLevelName(event.level)
    signal = next(name for name, signal in vars(signals).items() if signal is event.signal)
    assert signal == event.name.replace("-", "_") or signal in codes(row[3]), f"the row does not name {signal}"


@pytest.mark.parametrize("name", EVENTS)
def test_each_event_s_row_names_its_data(name: str) -> None:
    assert set(codes(row_of(EVENTS[name])[2])) == data_of(name)


def row_of(event: log.Event, heading: str = "") -> list[str]:
    """The event's row in docs/reference/events.md."""
    found = [row for row in rows(REFERENCE / "events.md", heading) if codes(row[0]) == [event.name]]
    assert len(found) == 1, f"docs/reference/events.md has {len(found)} rows for {event.name} below {heading!r}"
    return found[0]


def data_of(event: str) -> set[str]:
    """The data that the package's calls give with an event, whether its own log's or an attempt's."""
    found: set[str] = set()
    for node in nodes():
        if isinstance(node, ast.Call) and node.args and event in _names(node.args[0]):
            found |= {"exception" if keyword.arg == "error" else str(keyword.arg) for keyword in node.keywords}
    return found


def _names(node: ast.expr) -> set[str]:
    match node:
        case ast.Attribute(value=ast.Name(id="events"), attr=name) | ast.Name(id=name):
            return {name}
        case ast.IfExp(body=body, orelse=other):
            return _names(body) | _names(other)
    return set()


def test_each_row_is_an_event() -> None:
    told = {codes(row[0])[0] for row in rows(REFERENCE / "events.md")}
    assert told == {event.name for event in EVENTS.values()}


# -- Exceptions ------------------------------------------------------------------------------------------------------


def test_each_exception_has_a_row_with_its_bases() -> None:
    told = {codes(row[0])[0]: codes(row[1]) for row in rows(REFERENCE / "exceptions.md")}
    ours = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}
    assert told == {name: bases(kind) for name, kind in ours.items()}


def bases(kind: type[BaseException]) -> list[str]:
    """What an exception is beside a ProletarianError."""
    return [base.__name__ for base in kind.__bases__ if base not in (errors.ProletarianError, Exception)]


def test_the_exceptions_page_says_where_each_is_imported_from() -> None:
    for row in rows(REFERENCE / "exceptions.md"):
        name = codes(row[0])[0]
        assert hasattr(django_proletarian, name) or "from `django_proletarian.errors`" in row[3], name


# -- Commands and options --------------------------------------------------------------------------------------------

COMMANDS = sorted(path.stem for path in (PACKAGE / "management" / "commands").glob("proletarian_*.py"))
DJANGOS = {
    *("help", "version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color", "skip_checks")
}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_of_a_command_has_a_row(command: str) -> None:
    told = {codes(row[0])[0].split()[0] for row in rows(REFERENCE / "commands.md", f"## {command}")}
    parser = load_command_class("django_proletarian", command).create_parser("manage.py", command)
    options = {action.option_strings[0] for action in parser._actions if action.dest not in DJANGOS}
    assert told == options


def test_each_command_has_a_section() -> None:
    told = re.findall(r"^## (proletarian_\w+)$", (REFERENCE / "commands.md").read_text(), re.MULTILINE)
    assert sorted(told) == COMMANDS


@pytest.mark.parametrize(
    ("function", "known"),
    [
        (django_proletarian.job_handler, {"function_or_type"}),
        (django_proletarian.enqueue, {"job_type", "payload"}),
        (django_proletarian.create_queue_worker, {"queues"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_option_in_code_has_a_row(function: Callable[..., Any], known: set[str]) -> None:
    told = {codes(row[0])[0]: row[2] for row in rows(REFERENCE / "options.md", f"## {function.__name__}")}
    parameters = inspect.signature(function).parameters
    assert set(told) == set(parameters) - known


# -- Schema ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", Tables().all)
@pytest.mark.django_db
def test_each_column_has_a_row_with_its_type(table: str) -> None:
    told = {codes(row[0])[0]: codes(row[1])[0] for row in rows(REFERENCE / "schema.md", f"## {table}")}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE (table_schema, table_name) = (%s, %s)",
            table.split("."),
        )
        assert told == dict(cursor.fetchall())


@pytest.mark.django_db
def test_each_index_is_named() -> None:
    text = (REFERENCE / "schema.md").read_text()
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'proletarian' AND indexname !~ '_pkey$'")
        missing = [name for (name,) in cursor.fetchall() if f"`{name}`" not in text]
    assert missing == []


# -- Metrics ---------------------------------------------------------------------------------------------------------


def test_each_metric_has_a_row() -> None:
    page = REPOSITORY / "docs" / "how-to" / "monitoring.md"
    told = {name for row in rows(page, "## Metrics") for name in codes(row[0])}
    assert told == set(re.findall(r'"(proletarian_\w+)"', Path(PACKAGE / "metrics.py").read_text()))
