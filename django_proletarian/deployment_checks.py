"""System checks of a deployment, `manage.py check --deploy`: what makes jobs wait, pile up or get lost in production.

Those that ask a database run where one is named: `manage.py check --deploy --database default`, best as the role and
with the settings of the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage
from django.db import OperationalError, connections, router, transaction
from django.db.backends.utils import CursorWrapper

from django_proletarian import conf, deployment, durations, names
from django_proletarian.handlers import registered
from django_proletarian.installation import GRANTS, PRUNING_GRANTS, identifier
from django_proletarian.models import Job
from django_proletarian.overview import prefer_indexes, queue_states
from django_proletarian.serializers import Serializer, TransitSerializer
from django_proletarian.suggestions import did_you_mean
from django_proletarian.tables import Tables, quoted

MOST_PAYLOADS = 100  # rows whose payloads are read
UNATTENDED_FOR = 60.0  # seconds that a job has been due with no worker for its queue
# Without it a statement reads the whole table.
INDEXES = (("job", ("queue", "process_at")), ("archived_job", ("finished_at",)), ("job_attempt", ("job_id",)))


def check_retention(**kwargs: Any) -> list[CheckMessage]:
    """W006: the archive grows for ever."""
    read, problems = conf.read_project()
    if problems or read.retention:
        return []
    return [
        warning(
            "W006",
            "PROLETARIAN has no RETENTION: archived jobs are kept for ever.",
            'PROLETARIAN = {"RETENTION": {"success": timedelta(days=7), "failure": timedelta(days=90)}}. If a timer '
            'runs proletarian_prune instead: SILENCED_SYSTEM_CHECKS = ["django_proletarian.W006"].',
        )
    ]


def check_deployment(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """W002 to W009 but W006, for each of `databases` that may hold jobs. None asks no database, as Django has it."""
    _, problems = conf.read_project()
    if problems:
        return []  # the settings' own checks tell of them
    found: list[CheckMessage] = []
    for alias in databases or ():
        if connections[alias].vendor != "postgresql" or not router.allow_migrate_model(alias, Job):
            continue
        try:
            with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
                prefer_indexes(cursor)
                found += _found(cursor, alias, conf.settings().tables)
        except OperationalError as error:
            message = f'Database "{alias}" could not be asked about its tables: {str(error).strip()}'
            found.append(warning("W002", message, f'See to DATABASES["{alias}"] and the server, and check again.'))
    return found


def _found(cursor: CursorWrapper, alias: str, tables: Tables) -> Iterator[CheckMessage]:
    ids = deployment.table_ids(cursor, tables.all)
    yield from _missing_tables(ids, alias, tables)
    yield from _missing_indexes(cursor, ids, alias, tables)
    rights_are_missing = False
    for message in _missing_rights(cursor, ids, alias, tables):
        rights_are_missing = True
        yield message
    yield from _too_few_connections(cursor, alias)
    if len(ids) == len(tables.all) and not rights_are_missing:
        yield from _no_worker_yet(cursor, alias, tables)
        yield from _unattended_queues(cursor, alias, tables)
        yield from _other_serializers_payloads(cursor, alias, tables)


def _missing_tables(ids: dict[str, int], alias: str, tables: Tables) -> Iterator[CheckMessage]:
    """W002: a table is missing."""
    missing = [table for table in tables.all if table not in ids]
    if missing:
        yield warning(
            "W002",
            f'Database "{alias}" lacks {_listed(missing)}.',
            f"Make what is missing: manage.py migrate django_proletarian --database {alias}, as a role that may create "
            "tables; or print the SQL for one who may: manage.py proletarian_install --print-sql.",
        )


def _missing_indexes(cursor: CursorWrapper, ids: dict[str, int], alias: str, tables: Tables) -> Iterator[CheckMessage]:
    """W003: an index is missing, so that each claim, or each look into the archive, reads the whole table."""
    for name, columns in INDEXES:
        table = getattr(tables, name)
        if table in ids and not deployment.has_index(cursor, ids[table], columns):
            yield warning(
                "W003",
                f'{table} in database "{alias}" has no index on ({", ".join(columns)}), and is read whole instead.',
                f"As its owner: CREATE INDEX CONCURRENTLY ON {quoted(table)} ({', '.join(columns)});",
            )


def _missing_rights(cursor: CursorWrapper, ids: dict[str, int], alias: str, tables: Tables) -> Iterator[CheckMessage]:
    """W004: the role may not do what a worker does."""
    pruning = PRUNING_GRANTS if conf.settings().retention else ()
    for name, wanted in (*GRANTS, *pruning):
        table = getattr(tables, name)
        if table not in ids:
            continue
        may, role = deployment.may_use_schema(cursor, ids[table])
        schema = table.rpartition(".")[0]
        usage = "" if may else f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {identifier(role)}; "
        # TRUNCATE is the original's grant, and no worker's need.
        rights = [right for right in wanted.split(", ") if right != "TRUNCATE"]
        missing = deployment.missing_rights(cursor, ids[table], rights)
        if usage or missing:
            grant = f"GRANT {', '.join(missing)} ON {quoted(table)} TO {identifier(role)};" if missing else ""
            yield warning(
                "W004",
                f'Role "{role}" of database "{alias}" may not {_listed(missing or ["look"])} in {table}, which a '
                "worker has to.",
                f"{usage}{grant}".strip() + " (A role that only enqueues needs SELECT and INSERT on the job table; "
                'silence this for it: SILENCED_SYSTEM_CHECKS = ["django_proletarian.W004"].)',
            )


def _too_few_connections(cursor: CursorWrapper, alias: str) -> Iterator[CheckMessage]:
    """W008: the threads of a worker want more connections than there are."""
    settings = conf.settings()
    # Each thread claims on one and its handler has another; each process listens, beats, prunes and extends leases on
    # one each.
    has_leases = any(handler.lease is not None for handler in registered())
    wanted = settings.processes * (2 * settings.threads + 2 + bool(settings.retention) + has_leases)
    most = deployment.most_connections(cursor)
    if most is not None and wanted > most:
        yield warning(
            "W008",
            f"A worker with PROCESSES = {settings.processes} and THREADS = {settings.threads} opens up to {wanted} "
            f'connections, and database "{alias}" allows {most} to all.',
            "Lower THREADS or PROCESSES, raise the server's max_connections (or the role's or database's CONNECTION "
            "LIMIT), or put a pooler between.",
        )


def _no_worker_yet(cursor: CursorWrapper, alias: str, tables: Tables) -> Iterator[CheckMessage]:
    """W005: nobody has ever worked here."""
    if not deployment.has_seen_a_worker(cursor, tables):
        yield warning(
            "W005",
            f'No worker has ever been seen on database "{alias}": jobs are enqueued, and nobody runs them.',
            f"Keep one running beside the web server: manage.py proletarian_worker --database {alias}. If jobs wait "
            "though one runs, it works on another database: see that both have the same DATABASES.",
        )


def _unattended_queues(cursor: CursorWrapper, alias: str, tables: Tables) -> Iterator[CheckMessage]:
    """W009: jobs are due in a queue that no worker works on."""
    attended = deployment.queues_with_workers(cursor, tables)
    for state in queue_states(cursor, tables, []):
        queue, _priority = conf.queue_and_priority(state.queue)
        is_attended = not attended.isdisjoint((names.to_stored(queue), names.to_stored(state.queue)))
        if is_attended or (state.oldest_due or 0.0) < UNATTENDED_FOR:
            continue
        shown = names.shown(queue)
        meant = did_you_mean(queue, map(names.from_stored, attended))
        yield warning(
            "W009",
            f'Queue {shown} in database "{alias}" has jobs that have been due for '
            f"{durations.shown(state.oldest_due or 0.0)}, and no Django worker that is alive works on it.",
            f"{meant}Name the queue alike where jobs are enqueued and where they are run: "
            f"manage.py proletarian_worker --queue '{shown}'.",
        )


def _other_serializers_payloads(cursor: CursorWrapper, alias: str, tables: Tables) -> Iterator[CheckMessage]:
    """W007: jobs wait whose payloads the SERIALIZER of today did not write."""
    serializer = conf.serializer()
    payloads = deployment.some_payloads(cursor, tables, MOST_PAYLOADS)
    foreign = [job_id for job_id, payload in payloads if is_foreign(payload, serializer)]
    if foreign:
        yield warning(
            "W007",
            f'{len(foreign)} of {len(payloads)} jobs that wait in database "{alias}" have payloads that '
            f"{type(serializer).__name__} did not write, the first of them {foreign[0]}; their handlers would fail or "
            "get something else.",
            "Run the waiting jobs with the former SERIALIZER first (proletarian_worker --drain, with scheduled ones in "
            "mind), or use a serializer whose decode reads both.",
        )


def is_foreign(payload: str, serializer: Serializer) -> bool:
    """Whether a payload, as stored, was written by another serializer: it can't be read, or it reads as another value.

    JSON reads Transit's text as a list with strange strings in it; Transit reads JSON's objects, but writes none.
    """
    is_transit = isinstance(serializer, TransitSerializer)
    if is_transit and not payload.lstrip().startswith("["):
        return True
    if not is_transit and payload.startswith(('["^ ","~', '["~#')):
        return True
    try:
        serializer.decode(payload)
    except Exception:  # noqa: BLE001 # a serializer may be the user's, and may raise anything
        return True
    return False


def warning(number: str, message: str, hint: str) -> CheckMessage:
    return checks.Warning(message, hint=hint, id=f"django_proletarian.{number}")


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
