"""All that a queue worker needs to know, from whichever settings and arguments it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from django_proletarian.attempts import RecordAttempts
from django_proletarian.handlers import FailedJobCallback, Handler
from django_proletarian.retry import RetryStrategyFunction, RetryStrategyLike
from django_proletarian.serializers import Serializer
from django_proletarian.tables import Tables

if TYPE_CHECKING:
    from django_proletarian.tracing import Tracing  # which needs OpenTelemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """All that a queue worker needs to know. `create_queue_worker` fills it from the settings."""

    worker_id: str
    queues: tuple[str, ...]  # drained in this order
    own_queues: frozenset[str] = frozenset()  # names that are no other queue's levels, although they may look so
    database: str  # alias
    tables: Tables
    serializer: Serializer
    find_handler: Callable[[str], Handler | None]
    threads: int = 1
    polling_interval: float = 0.1  # seconds
    idle_polling_interval: float = 1.0  # seconds; counts while every enqueue is heard of
    unbounded_claim_interval: float = 1.0  # seconds; the longest that a job committed late can be overlooked
    listen_database: str | None = None  # alias to listen with; None polls only
    shutdown_timeout: float = 10.0  # seconds
    max_crashes: int = 3  # a job whose process died is run at least so often
    retry_strategy: RetryStrategyLike | RetryStrategyFunction = None
    failed_job: FailedJobCallback | None = None
    on_polling_error: Callable[[BaseException], object] | None = None  # truthy result: stop the whole worker
    on_shutdown: Callable[[], object] | None = None
    clock: Callable[[], datetime | None] | None = None  # None, and if it says None: the database's
    drain: bool = False  # end when nothing is due, instead of polling on
    batch_size: int = 1  # jobs in one transaction
    batch_seconds: float = 0.1  # no job of a batch begins later
    max_jobs: int | None = None  # end after so many; None for no end
    retention: Mapping[str, float] = field(default_factory=dict)  # seconds that archived jobs are kept, by status
    time_limit: float | None = None  # seconds that a handler may run; None for no limit
    time_limit_grace: float = 10.0  # seconds after that in which it should have ended
    record_attempts: RecordAttempts = "failures"  # all that did not succeed
    tracing: Tracing | None = None  # what makes a span of each attempt

    def now(self) -> datetime | None:
        """What replaces the database's clock; None for that clock itself."""
        return self.clock() if self.clock is not None else None
