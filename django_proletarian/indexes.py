"""Indexes of ours, each for a part of a table's rows, and the operation with which a migration builds one.

They serve who looks at jobs, and no worker: where a role may build none, all works without, only slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.db import router
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_proletarian.schema import MAY_CREATE_INDEX
from django_proletarian.tables import Tables, extended, quoted

CREATE = "CREATE INDEX {concurrently}{if_not_exists}{name} ON {table} {definition};"
CREATE_IF_MISSING = """
DO $$
BEGIN
    IF NOT EXISTS ({is_there}) THEN
        {create}
    END IF;
END
$$;
"""
DROP = "DROP INDEX {concurrently}IF EXISTS {index};"
IS_THERE = "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass('{index}') AND indisvalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialIndex:
    """An index, and the SQL about it. Released definitions are never edited."""

    of: Literal["job", "archived_job"]  # the table, as `Tables` calls it
    suffix: str  # with which its name extends the table's
    definition: str  # what follows the table's name in CREATE INDEX

    def table(self, tables: Tables) -> str:
        """The table's name, quoted."""
        return quoted(getattr(tables, self.of))

    def create(self, tables: Tables, *, concurrently: bool = False, if_not_exists: bool = False) -> str:
        """Create it."""
        return CREATE.format(
            concurrently="CONCURRENTLY " if concurrently else "",
            if_not_exists="IF NOT EXISTS " if if_not_exists else "",
            name=quoted(self._name(tables)[-1]),
            table=self.table(tables),
            definition=self.definition,
        )

    def create_if_missing(self, tables: Tables) -> str:
        """Create it unless it is there."""
        return CREATE_IF_MISSING.format(is_there=self.is_there(tables), create=self.create(tables))

    def drop(self, tables: Tables, *, concurrently: bool) -> str:
        """Drop it."""
        return DROP.format(concurrently="CONCURRENTLY " if concurrently else "", index=self._quoted(tables))

    def is_there(self, tables: Tables) -> str:
        """Select a row if it is there, and whole."""
        return IS_THERE.format(index=self._quoted(tables))

    def may_create(self, tables: Tables) -> str:
        """Select whether the current role may create it."""
        return MAY_CREATE_INDEX.format(table=self.table(tables))

    def _quoted(self, tables: Tables) -> str:
        return quoted(".".join(self._name(tables)))

    def _name(self, tables: Tables) -> list[str]:
        *schema, table = getattr(tables, self.of).split(".")
        return [*schema, extended(table, self.suffix)]


# Few jobs fail, and it is those that people look for. Successes cost nothing here, as they have no entry.
FAILURES = PartialIndex(of="archived_job", suffix="_failures", definition="(finished_at) WHERE status = ':failure'")
# Jobs that were never tried have no entry, so neither enqueueing nor a first attempt that succeeds touches it.
TRIED_BEFORE = PartialIndex(of="job", suffix="_retrying", definition="(queue, process_at) WHERE attempts > 0")


class CreateIndex(Operation):
    """Build an index while workers go on, in a migration that is not atomic; a role that may build none leaves it out.

    `model_name` is what routers are asked about.
    """

    reversible = True
    reduces_to_sql = True

    def __init__(self, index: PartialIndex, tables: Tables, *, model_name: str, description: str) -> None:
        self.index = index
        self.tables = tables
        self.model_name = model_name
        self.description = description

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        pass

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if not self.applies_to(app_label, schema_editor):
            return
        index, tables = self.index, self.tables
        if schema_editor.collect_sql:
            # For somebody to run who can see for himself what there is.
            schema_editor.execute(index.create(tables, concurrently=True, if_not_exists=True), None)
            return
        connection = schema_editor.connection
        with connection.cursor() as cursor:
            cursor.execute(index.is_there(tables))
            if cursor.rowcount:
                return
            cursor.execute(index.may_create(tables))
            if cursor.fetchone() != (True,):
                return
            cursor.execute(f"SELECT FROM {index.table(tables)} LIMIT 1")
            # Building it concurrently waits for every open transaction, which an empty table need not.
            concurrently = bool(cursor.rowcount) and not connection.in_atomic_block
        # One of its name was left behind, unfinished, by a build that was cut off.
        schema_editor.execute(index.drop(tables, concurrently=concurrently), None)
        schema_editor.execute(index.create(tables, concurrently=concurrently), None)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        if self.applies_to(app_label, schema_editor):
            concurrently = not schema_editor.connection.in_atomic_block
            schema_editor.execute(self.index.drop(self.tables, concurrently=concurrently), None)

    def applies_to(self, app_label: str, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        connection = schema_editor.connection
        return connection.vendor == "postgresql" and router.allow_migrate(
            connection.alias, app_label, model_name=self.model_name
        )

    def describe(self) -> str:
        return self.description
