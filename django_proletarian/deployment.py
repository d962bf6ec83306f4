"""What a database says about an installation: tables, indexes, rights, connections, workers. For `check --deploy`.

Each function asks one question on the caller's cursor and reads a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, LiteralString

from django.db.backends.utils import CursorWrapper

from django_proletarian import names
from django_proletarian.tables import Tables, for_tables
from django_proletarian.worker_row import DEAD_AFTER

# Not to_regclass, which is refused where the role may not use the schema.
TABLE_ID: LiteralString = """
SELECT pg_class.oid
  FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
 WHERE relname = %(name)s
   AND CASE WHEN %(schema)s = '' THEN pg_table_is_visible(pg_class.oid) ELSE nspname = %(schema)s END
"""


def table_ids(cursor: CursorWrapper, tables: Iterable[str]) -> dict[str, int]:
    """Those of `tables` that exist, with the numbers that the server knows them by."""
    found = {}
    for table in tables:
        schema, _, name = table.rpartition(".")
        cursor.execute(TABLE_ID, {"schema": schema, "name": name})
        if row := cursor.fetchone():
            found[table] = row[0]
    return found


HAS_INDEX: LiteralString = """
SELECT EXISTS (
    SELECT FROM pg_index
     WHERE indrelid = %s AND indisvalid AND indpred IS NULL
       AND %s::text[] = ARRAY(
               SELECT attname::text
                 FROM unnest(indkey) WITH ORDINALITY AS key (number, place)
                 JOIN pg_attribute ON attrelid = indrelid AND attnum = key.number
                WHERE place <= cardinality(%s::text[])
                ORDER BY place))
"""


def has_index(cursor: CursorWrapper, table_id: int, columns: Sequence[str]) -> bool:
    """Whether the table has an index for all its rows that begins with `columns`."""
    cursor.execute(HAS_INDEX, [table_id, list(columns), list(columns)])
    [found] = cursor.fetchone()
    return bool(found)


MISSING_RIGHTS: LiteralString = """
SELECT kind FROM unnest(%s::text[]) AS kind WHERE NOT has_table_privilege(%s::oid, kind)
"""


def missing_rights(cursor: CursorWrapper, table_id: int, rights: Sequence[str]) -> list[str]:
    """Those of `rights` that the current role does not have on the table."""
    cursor.execute(MISSING_RIGHTS, [list(rights), table_id])
    return [right for (right,) in cursor.fetchall()]


MAY_USE_SCHEMA: LiteralString = """
SELECT has_schema_privilege(relnamespace, 'USAGE'), current_user FROM pg_class WHERE oid = %s
"""


def may_use_schema(cursor: CursorWrapper, table_id: int) -> tuple[bool, str]:
    """Whether the current role may use the table's schema, and the role's name."""
    cursor.execute(MAY_USE_SCHEMA, [table_id])
    may, role = cursor.fetchone()
    return may, role


# Those kept back for superusers and, from PostgreSQL 16 on, for privileged roles are not there for us.
CONNECTIONS: LiteralString = """
SELECT pg_backend_pid(),
       LEAST(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                 - COALESCE(current_setting('reserved_connections', TRUE)::int, 0),
             (SELECT NULLIF(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
             (SELECT NULLIF(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))
"""


def most_connections(cursor: CursorWrapper) -> int | None:
    """How many connections the server, the database and the role allow; None behind a pooler, which shares them out."""
    cursor.execute(CONNECTIONS)
    server_process, most = cursor.fetchone()
    # A pooler tells its clients a process number of its own.
    return int(most) if server_process == cursor.db.connection.info.backend_pid else None


ANY_WORKER_EVER: LiteralString = "SELECT EXISTS (SELECT FROM {worker}) OR EXISTS (SELECT FROM {archived_job})"


def has_seen_a_worker(cursor: CursorWrapper, tables: Tables) -> bool:
    """Whether a worker, ours or the original's, has left any trace in the tables."""
    cursor.execute(for_tables(ANY_WORKER_EVER, tables))
    [seen] = cursor.fetchone()
    return bool(seen)


WORKERS_QUEUES: LiteralString = """
SELECT DISTINCT jsonb_array_elements_text(queues) FROM {worker}
 WHERE heartbeat_at > statement_timestamp() - %s * interval '1 second'
"""


def queues_with_workers(cursor: CursorWrapper, tables: Tables) -> set[str]:
    """The queues that some Django worker which is alive works on, as they are stored."""
    cursor.execute(for_tables(WORKERS_QUEUES, tables), [DEAD_AFTER])
    return {names.to_stored(names.parse(queue)) for (queue,) in cursor.fetchall()}


SOME_PAYLOADS: LiteralString = "SELECT job_id, payload FROM {job} LIMIT %s"


def some_payloads(cursor: CursorWrapper, tables: Tables, most: int) -> list[tuple[Any, str]]:
    """Ids and payloads of some jobs that wait; by their place in the table, which mostly means old ones."""
    cursor.execute(for_tables(SOME_PAYLOADS, tables), [most])
    return list(cursor.fetchall())
