"""Where jobs live: the table names, as configured and as SQL writes them."""

from __future__ import annotations

import functools
from typing import LiteralString, NamedTuple

LONGEST_NAME = 63  # bytes that PostgreSQL keeps of one


class Tables(NamedTuple):  # which is hashed, for every statement, in a fifth of the time of a dataclass
    """Each `table` or `schema.table`, made of letters, digits and underscores only."""

    job: str = "proletarian.job"
    archived_job: str = "proletarian.archived_job"

    @property
    def job_attempt(self) -> str:
        """Beside the job table, and called after it: `proletarian.job_attempt`."""
        return extended(self.job, "_attempt")

    @property
    def worker(self) -> str:
        """Beside the job table: `proletarian.worker`, or `shop.mail_worker` where that is `shop.mail_job`."""
        schema, dot, table = self.job.rpartition(".")
        if table.endswith("job"):
            return f"{schema}{dot}{extended(table.removesuffix('job'), 'worker')}"
        return extended(self.job, "_worker")

    @property
    def all(self) -> tuple[str, ...]:
        """The original's two and ours."""
        return (*self, self.job_attempt, self.worker)


def extended(name: str, suffix: str) -> str:
    """A name, perhaps with its schema, and a suffix, cut where PostgreSQL would cut the suffix off."""
    schema, dot, table = name.rpartition(".")
    return f"{schema}{dot}{table[: LONGEST_NAME - len(suffix)]}{suffix}"


def quoted(table: str) -> str:
    """`schema.table` as SQL writes it, which Django passes through as a db_table."""
    return ".".join(f'"{part}"' for part in table.split("."))


@functools.cache
def for_tables(statement: LiteralString, tables: Tables) -> str:
    """A statement with the tables' names in braces in it, such as `{job}`, for these tables."""
    return statement.format(
        job=quoted(tables.job),
        archived_job=quoted(tables.archived_job),
        job_attempt=quoted(tables.job_attempt),
        worker=quoted(tables.worker),
    )
