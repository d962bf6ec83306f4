"""The DDL of Proletarian's tables and of what we add to them, for the migrations and for test runs without migrations.

Released text: never edit it, a change is a new migration. The definitions are the original's. What surrounds them lets
tables that a Clojure installation made be adopted as they are, by a role that may not create anything.

Source: proletarian, database/postgresql/tables.sql.
"""

from __future__ import annotations

from django_proletarian.tables import Tables, extended, quoted

CREATE_SCHEMA = """
DO $$
BEGIN
    -- CREATE SCHEMA IF NOT EXISTS wants the right to create even where there is nothing to do.
    IF to_regnamespace('{schema}') IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END
$$;
"""

DROP_SCHEMA = """
DO $$
BEGIN
    DROP SCHEMA IF EXISTS {schema};
EXCEPTION
    -- Something else lives there, or it is another role's.
    WHEN dependent_objects_still_exist OR insufficient_privilege THEN NULL;
END
$$;
"""

CREATE_JOB = """
DO $$
BEGIN
    IF to_regclass('{job}') IS NULL THEN
        CREATE TABLE {job} (
            job_id      UUID PRIMARY KEY,     -- generated and returned by enqueue
            queue       TEXT        NOT NULL, -- queue name
            job_type    TEXT        NOT NULL, -- job type
            payload     TEXT        NOT NULL, -- Transit-encoded job data
            attempts    INTEGER     NOT NULL, -- starts at 0; increments when the job is processed
            enqueued_at TIMESTAMPTZ NOT NULL, -- never changes
            process_at  TIMESTAMPTZ NOT NULL  -- when the job should run; updated at every retry
        );
    END IF;
    -- An index that is already right is left alone: building one locks the table for as long as it takes.
    IF NOT EXISTS (
        SELECT FROM pg_index
         WHERE indrelid = '{job}'::regclass AND indisvalid AND indpred IS NULL AND indnkeyatts = 2
           AND pg_get_indexdef(indexrelid) LIKE '% USING btree (queue, process_at)%'
    ) THEN
        DROP INDEX IF EXISTS {index};
        CREATE INDEX {index_name} ON {job} (queue, process_at);
    END IF;
END
$$;
"""

CREATE_ARCHIVED_JOB = """
DO $$
BEGIN
    IF to_regclass('{archived_job}') IS NULL THEN
        CREATE TABLE {archived_job} (
            job_id      UUID PRIMARY KEY,     -- copied from job, as are the next six
            queue       TEXT        NOT NULL,
            job_type    TEXT        NOT NULL,
            payload     TEXT        NOT NULL,
            attempts    INTEGER     NOT NULL,
            enqueued_at TIMESTAMPTZ NOT NULL,
            process_at  TIMESTAMPTZ NOT NULL, -- of the last run only
            status      TEXT        NOT NULL, -- success / failure
            finished_at TIMESTAMPTZ NOT NULL
        );
    END IF;
END
$$;
"""

# Proletarian before 1.0.109 made TIMESTAMP columns, in UTC. Compared with a clock they would follow the session's
# time zone, so such tables are not adopted, and nothing has been changed when this says so.
REFUSE_OLD_TIMESTAMPS = """
DO $$
DECLARE
    alterations TEXT;
BEGIN
    SELECT string_agg(format('ALTER COLUMN %I TYPE TIMESTAMPTZ USING %I AT TIME ZONE ''UTC''', attname, attname), ', ')
      INTO alterations
      FROM pg_attribute
     WHERE attrelid = to_regclass('{table}') AND atttypid = 'timestamp'::regtype AND NOT attisdropped;
    IF alterations IS NOT NULL THEN
        RAISE EXCEPTION 'Table {table} was made by an old Proletarian: its dates have no time zone.'
              USING HINT = 'Stop its workers, run: ALTER TABLE {table} ' || alterations || '; then migrate again.';
    END IF;
END
$$;
"""

DROP_TABLE = "DROP TABLE IF EXISTS {table};"

# -- 0002: an index of ours on the archive ---------------------------------------------------------------------------

# Retention walks it from its beginning, the admin's list from its end. Without job_id, which would order jobs that
# finished at one time: a plan made while the archive was empty might then look for a job by this index, all of it.
CREATE_FINISHED_AT_INDEX = "CREATE INDEX {concurrently}{if_not_exists}{name} ON {archived_job} (finished_at);"
DROP_FINISHED_AT_INDEX = "DROP INDEX {concurrently}IF EXISTS {index};"
FINISHED_AT_INDEXES = """
SELECT 1 FROM pg_index
 WHERE indrelid = to_regclass('{archived_job}') AND indisvalid AND indpred IS NULL
   AND pg_get_indexdef(indexrelid) ~ ' USING btree [(]finished_at[,) ]'
"""
CREATE_FINISHED_AT_INDEX_IF_MISSING = """
DO $$
BEGIN
    IF NOT EXISTS ({indexes}) THEN
        {create}
    END IF;
END
$$;
"""
# Building an index takes the owner of the table, and the right to create in its schema.
MAY_CREATE_INDEX = """
SELECT pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE')
  FROM pg_class WHERE oid = to_regclass('{table}')
"""

# -- 0003: tables of ours, which the original never sees -------------------------------------------------------------

CREATE_JOB_ATTEMPT = """
DO $$
BEGIN
    IF to_regclass('{job_attempt}') IS NULL THEN
        CREATE TABLE {job_attempt} (
            attempt_id      BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
            job_id          UUID        NOT NULL, -- of a row in job or in archived_job
            attempt         INTEGER     NOT NULL, -- 1 for a job's first; twice the same after an interrupted one
            worker_id       TEXT,                 -- queue worker's name; NULL if no worker was at it
            started_at      TIMESTAMPTZ NOT NULL,
            finished_at     TIMESTAMPTZ NOT NULL,
            outcome         TEXT        NOT NULL, -- success, retry, failure, crash, timeout, interrupted, cancelled
            exception_class TEXT,                 -- with its module
            message         TEXT,                 -- the exception's, or who cancelled the job
            traceback       TEXT,                 -- cut in its middle if it is long
            result          TEXT                  -- what the handler returned, encoded
        );
        CREATE INDEX {index_name} ON {job_attempt} (job_id);
    END IF;
END
$$;
"""

CREATE_WORKER = """
DO $$
BEGIN
    IF to_regclass('{worker}') IS NULL THEN
        CREATE TABLE {worker} (
            process_id   UUID PRIMARY KEY,     -- chosen when the worker process started
            worker_id    TEXT        NOT NULL, -- queue worker's name
            host         TEXT        NOT NULL,
            pid          INTEGER     NOT NULL,
            queues       JSONB       NOT NULL, -- array of names, in the order in which they are drained
            processes    INTEGER     NOT NULL, -- that work together under one supervisor, this one included
            threads      INTEGER     NOT NULL, -- of this process
            version      TEXT        NOT NULL, -- of django-proletarian
            started_at   TIMESTAMPTZ NOT NULL,
            heartbeat_at TIMESTAMPTZ NOT NULL, -- when all below was true
            running      JSONB       NOT NULL, -- array of {{job_id, job_type, queue, attempt, seconds}}
            succeeded    BIGINT      NOT NULL, -- attempts since started_at
            failed       BIGINT      NOT NULL
        );
    END IF;
END
$$;
"""
MAY_CREATE_TABLES = """
SELECT bool_and(has_schema_privilege(oid, 'CREATE')) FROM pg_namespace
 WHERE oid = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('{job}'))
"""


def create_schemas(tables: Tables) -> str:
    """Create the tables' schemas where they are missing."""
    return _for_each_schema(CREATE_SCHEMA, tables)


def drop_schemas(tables: Tables) -> str:
    """Drop the tables' schemas, unless something else lives there."""
    return _for_each_schema(DROP_SCHEMA, tables)


def create_job(tables: Tables) -> str:
    """Create or adopt the job table and its index."""
    *schema, table = tables.job.split(".")
    index = extended(table, "_queue_process_at")
    job = quoted(tables.job)
    create = CREATE_JOB.format(job=job, index=quoted(".".join([*schema, index])), index_name=quoted(index))
    return REFUSE_OLD_TIMESTAMPS.format(table=job) + create


def create_archived_job(tables: Tables) -> str:
    """Create or adopt the archive."""
    archived_job = quoted(tables.archived_job)
    return REFUSE_OLD_TIMESTAMPS.format(table=archived_job) + CREATE_ARCHIVED_JOB.format(archived_job=archived_job)


def create_job_attempt(tables: Tables) -> str:
    """Create the table of attempts and its index, unless it is there."""
    index = extended(tables.job_attempt, "_job_id").rpartition(".")[-1]
    return CREATE_JOB_ATTEMPT.format(job_attempt=quoted(tables.job_attempt), index_name=quoted(index))


def create_worker(tables: Tables) -> str:
    """Create the table of workers, unless it is there."""
    return CREATE_WORKER.format(worker=quoted(tables.worker))


def may_create_tables(tables: Tables) -> str:
    """Select whether the current role may create tables beside the job table."""
    return MAY_CREATE_TABLES.format(job=quoted(tables.job))


def drop_job_attempt(tables: Tables) -> str:
    """Drop the table of attempts."""
    return DROP_TABLE.format(table=quoted(tables.job_attempt))


def drop_worker(tables: Tables) -> str:
    """Drop the table of workers."""
    return DROP_TABLE.format(table=quoted(tables.worker))


def drop_job(tables: Tables) -> str:
    """Drop the job table."""
    return DROP_TABLE.format(table=quoted(tables.job))


def drop_archived_job(tables: Tables) -> str:
    """Drop the archive."""
    return DROP_TABLE.format(table=quoted(tables.archived_job))


def create_finished_at_index(tables: Tables, *, concurrently: bool = False, if_not_exists: bool = False) -> str:
    """Create the archive's index by finished_at."""
    return CREATE_FINISHED_AT_INDEX.format(
        concurrently="CONCURRENTLY " if concurrently else "",
        if_not_exists="IF NOT EXISTS " if if_not_exists else "",
        name=quoted(_finished_at_index(tables)[-1]),
        archived_job=quoted(tables.archived_job),
    )


def create_finished_at_index_if_missing(tables: Tables) -> str:
    """Create the archive's index by finished_at unless there is one that serves."""
    return CREATE_FINISHED_AT_INDEX_IF_MISSING.format(
        indexes=finished_at_indexes(tables), create=create_finished_at_index(tables)
    )


def drop_finished_at_index(tables: Tables, *, concurrently: bool) -> str:
    """Drop the index of our own name."""
    return DROP_FINISHED_AT_INDEX.format(
        concurrently="CONCURRENTLY " if concurrently else "", index=quoted(".".join(_finished_at_index(tables)))
    )


def finished_at_indexes(tables: Tables) -> str:
    """Select a row for each index of the archive that begins with finished_at."""
    return FINISHED_AT_INDEXES.format(archived_job=quoted(tables.archived_job))


def may_create_finished_at_index(tables: Tables) -> str:
    """Select whether the current role may create the archive's index."""
    return MAY_CREATE_INDEX.format(table=quoted(tables.archived_job))


def _finished_at_index(tables: Tables) -> list[str]:
    *schema, table = tables.archived_job.split(".")
    return [*schema, extended(table, "_finished_at")]


def _for_each_schema(statement: str, tables: Tables) -> str:
    schemas = {table.split(".")[0] for table in (tables.job, tables.archived_job) if "." in table} - {"public"}
    return "".join(statement.format(schema=quoted(schema)) for schema in sorted(schemas)) or "SELECT 1;"
