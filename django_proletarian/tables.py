"""Where jobs live: the two table names, as configured and as SQL writes them."""

from __future__ import annotations

import functools
from typing import LiteralString, NamedTuple


class Tables(NamedTuple):  # which is hashed, for every statement, in a fifth of the time of a dataclass
    """Each `table` or `schema.table`, made of letters, digits and underscores only."""

    job: str = "proletarian.job"
    archived_job: str = "proletarian.archived_job"


def quoted(table: str) -> str:
    """`schema.table` as SQL writes it, which Django passes through as a db_table."""
    return ".".join(f'"{part}"' for part in table.split("."))


@functools.cache
def for_tables(statement: LiteralString, tables: Tables) -> str:
    """A statement with `{job}` and `{archived_job}` in it, for these tables."""
    return statement.format(job=quoted(tables.job), archived_job=quoted(tables.archived_job))
