"""`/metrics` for Prometheus, in OpenMetrics text. Needs the extra `metrics`; the address is in `urls`.

Everything is read from the tables at the time of the scrape, so it is right whichever of many web processes answers,
and after a restart. Rows of the archive are pruned, so that their number falls; a counter must not. What finished is
therefore told as gauges, over a window of the last minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import LiteralString

from django.db import connections, router, transaction
from django.db.backends.utils import CursorWrapper
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeHistogramMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from django_proletarian import conf, names, overview
from django_proletarian.models import Job
from django_proletarian.tables import Tables, quoted

WINDOW = 300  # seconds
MOST_RECENT = 20_000  # archived jobs, the newest; where there were more, the window is shorter
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)  # seconds


@never_cache
@require_safe
def metrics(request: HttpRequest, database: str | None = None) -> HttpResponse:
    """The metrics of `database`, or of where the routers send jobs, for who knows the METRICS_TOKEN setting."""
    settings = conf.settings()
    if settings.metrics_token is None:
        raise Http404("Metrics are off: the METRICS_TOKEN setting is not set.")
    if not constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {settings.metrics_token}"):
        return HttpResponse("Wrong token.\n", status=401, headers={"WWW-Authenticate": "Bearer"})
    registry = CollectorRegistry()
    queues = sorted({settings.queue, *settings.queues})
    registry.register(Scrape(router.db_for_read(Job) if database is None else database, settings.tables, queues))
    page: bytes = generate_latest(registry)  # type: ignore[no-untyped-call] # the library's
    return HttpResponse(page, content_type=CONTENT_TYPE_LATEST)


class Scrape(Collector):
    """One look at the tables."""

    def __init__(self, database: str, tables: Tables, queues: Sequence[str]) -> None:
        self._database = database
        self._tables = tables
        self._queues = queues

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not look already."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        with transaction.atomic(using=self._database), connections[self._database].cursor() as cursor:
            overview.prefer_indexes(cursor)
            yield from self.waiting(cursor)
            yield from self.working(cursor)
            if overview.has_index(cursor, self._tables):
                yield from self.finished(cursor)

    def waiting(self, cursor: CursorWrapper) -> Iterator[Metric]:
        jobs = GaugeMetricFamily(
            "proletarian_jobs",
            f"Jobs in the queue; estimated by the server where there are more than {overview.MOST_COUNTED}.",
            labels=["queue", "state"],
        )
        oldest = GaugeMetricFamily(
            "proletarian_oldest_due_job_age_seconds", "For how long the oldest due job has been due.", labels=["queue"]
        )
        for state in overview.queue_states(cursor, self._tables, self._queues):
            queue = names.shown(state.queue)
            jobs.add_metric([queue, "due"], state.due.value)
            jobs.add_metric([queue, "scheduled"], state.scheduled.value)
            oldest.add_metric([queue], state.oldest_due or 0.0)
        yield jobs
        yield oldest

    def working(self, cursor: CursorWrapper) -> Iterator[Metric]:
        workers = list(overview.workers(cursor, self._tables))
        yield GaugeMetricFamily("proletarian_workers", "Workers that are connected.", value=len(workers))
        running = [worker.running for worker in workers]
        if None not in running:  # as it is where the role may not know
            yield GaugeMetricFamily(
                "proletarian_running_jobs",
                "Worker threads that hold a job, or a batch of them.",
                value=sum(number or 0 for number in running),
            )

    def finished(self, cursor: CursorWrapper) -> Iterator[Metric]:
        window, groups = recent_jobs(cursor, self._tables)
        yield GaugeMetricFamily("proletarian_recent_window_seconds", "How far back the recent jobs go.", value=window)
        jobs = GaugeMetricFamily(
            "proletarian_recent_jobs", "Jobs that finished in the window.", labels=["job_type", "status"]
        )
        seconds = GaugeHistogramMetricFamily(
            "proletarian_recent_job_duration_seconds",
            "From a job's process_at to its end: the wait for a worker, and the last attempt.",
            labels=["job_type", "status"],
        )
        for group in groups:
            labels = [names.shown(group.job_type), group.status]
            jobs.add_metric(labels, group.jobs)
            edges = [*map(str, BUCKETS), "+Inf"]
            seconds.add_metric(labels, list(zip(edges, group.at_most, strict=True)), group.seconds)
        yield jobs
        yield seconds
        archived = overview.archived_jobs(cursor, self._tables)
        if archived is not None:
            yield GaugeMetricFamily(
                "proletarian_archived_jobs", "Archived jobs, as the server estimates.", value=archived
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentJobs:
    """The jobs of one type and status that finished in the window."""

    job_type: str
    status: str
    jobs: int
    seconds: float  # in all, from process_at to finished_at
    at_most: tuple[int, ...]  # how many took no longer than each of BUCKETS, and all of them


# width_bucket counts the edges that are not above a number; with all signs turned, those that are not below it.
RECENT: LiteralString = """
WITH recent AS MATERIALIZED (
    SELECT job_type, status, finished_at, GREATEST(extract(epoch FROM finished_at - process_at), 0)::float8 AS seconds
      FROM {archived_job}
     WHERE finished_at > statement_timestamp() - %s * interval '1 second'
     ORDER BY finished_at DESC
     LIMIT %s
)
SELECT job_type, status, width_bucket(-seconds, %s::float8[]), count(*), sum(seconds),
       (SELECT count(*) FROM recent),
       (SELECT extract(epoch FROM statement_timestamp() - min(finished_at))::float8 FROM recent)
  FROM recent
 GROUP BY 1, 2, 3
 ORDER BY 1, 2, 3
"""


def recent_jobs(cursor: CursorWrapper, tables: Tables) -> tuple[float, list[RecentJobs]]:
    """The window in seconds, and what finished in it."""
    edges = [-edge for edge in reversed(BUCKETS)]
    cursor.execute(RECENT.format(archived_job=quoted(tables.archived_job)), [WINDOW, MOST_RECENT, edges])
    rows = cursor.fetchall()
    if not rows:
        return WINDOW, []
    (counted, oldest), window = rows[0][-2:], float(WINDOW)
    if counted >= MOST_RECENT:
        window = max(oldest, 1e-6)
    in_buckets: dict[tuple[str, str], list[int]] = {}
    seconds: dict[tuple[str, str], float] = {}
    for job_type, status, edges_above, jobs, total, *_ in rows:
        group = (job_type, status)
        in_buckets.setdefault(group, [0] * (len(BUCKETS) + 1))[len(BUCKETS) - edges_above] = jobs
        seconds[group] = seconds.get(group, 0.0) + total
    return window, [
        RecentJobs(
            job_type=names.from_stored(job_type),
            status=names.from_stored(status),
            jobs=sum(buckets),
            seconds=seconds[job_type, status],
            at_most=tuple(accumulate(buckets)),
        )
        for (job_type, status), buckets in in_buckets.items()
    ]
