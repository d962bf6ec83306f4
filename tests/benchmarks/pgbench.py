"""PostgreSQL's own load generator doing the work of a queue worker: the fastest client there is to compare with.

Its scripts name their values `:name`; anything that begins with a colon, such as a queue's name, is therefore given to
it as the value of a variable.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile

from tests.benchmarks.server import QUEUE, STATUS, Server
from tests.postgres import programs

# What the original sends for each job.
FIVE_STATEMENTS = r"""
BEGIN;
SELECT job_id, queue AS job_queue, job_type, payload, attempts, enqueued_at, process_at FROM proletarian.job
 WHERE queue = :queue AND process_at <= now() ORDER BY process_at LIMIT 1 FOR UPDATE SKIP LOCKED \gset
INSERT INTO proletarian.archived_job
SELECT job_id, queue, job_type, payload, attempts + 1, enqueued_at, process_at, :status, now()
  FROM proletarian.job WHERE job_id = :job_id;
DELETE FROM proletarian.job WHERE job_id = :job_id;
COMMIT;
"""

JOBS_IN_A_BATCH = 100
ONE_STATEMENT_FOR_100_JOBS = """
WITH claimed AS (
    SELECT job_id FROM proletarian.job WHERE queue = :queue AND process_at <= now()
     ORDER BY process_at LIMIT 100 FOR UPDATE SKIP LOCKED
), finished AS (
    DELETE FROM proletarian.job USING claimed WHERE job.job_id = claimed.job_id RETURNING job.*
)
INSERT INTO proletarian.archived_job
SELECT job_id, queue, job_type, payload, attempts + 1, enqueued_at, process_at, :status, now() FROM finished;
"""


class NoPgbench(Exception):
    """There is no pgbench on this machine."""


def transactions_a_second(server: Server, script: str, clients: int, transactions: int) -> float:
    """Run `script` so many times in all, on `clients` connections. Raises NoPgbench."""
    program = shutil.which("pgbench", path=str(programs())) or shutil.which("pgbench")
    if program is None:
        raise NoPgbench("there is no pgbench beside the server's programs, nor on the PATH")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(
            [
                *(program, "--no-vacuum", "--protocol=prepared", f"--file={file.name}"),
                *("-D", f"queue={QUEUE}", "-D", f"status={STATUS}"),
                *(f"--client={clients}", f"--jobs={min(clients, 2)}", f"--transactions={transactions // clients}"),
                server.url,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"tps = ([\d.]+) \(without initial", done.stdout)
    if done.returncode or found is None:
        raise RuntimeError(f"pgbench: {done.stdout}{done.stderr}")
    return float(found[1])
