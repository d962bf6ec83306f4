"""OpenTelemetry: a span for each enqueue, one for each attempt, and a link from the second to the first.

Imported only where the TRACING setting is on, since it needs the extra `tracing`. Which spans are kept, and where they
go, is for the project's own set-up of OpenTelemetry to say.

The link travels behind the payload, in its own text, as spaces and tabs: JSON lets them stand after a value, and every
reader passes over them. So a Clojure worker, or a Django worker without tracing, reads the same payload as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from django_proletarian import names
from django_proletarian.errors import JobInterrupted
from django_proletarian.inserts import JobRow
from django_proletarian.store import ClaimedJob
from django_proletarian.version import __version__

MARK_SIZE = 128 + 64  # bits of a trace's id and of a span's, each a space or a tab
AS_SPACES, AS_BITS = str.maketrans("01", " \t"), str.maketrans(" \t", "01")


class Tracing:
    """Makes the spans. Used by all threads."""

    def __init__(self) -> None:
        # A proxy: it finds the project's provider even if that is set up later.
        self._tracer = trace.get_tracer("django_proletarian", __version__)

    @contextmanager
    def enqueuing(self, rows: Sequence[JobRow], *, may_mark: bool) -> Iterator[Sequence[JobRow]]:
        """Span around the INSERT of `rows`; gives the rows to insert. `may_mark` says whether payloads are JSON."""
        attributes: dict[str, str | int] = {"messaging.system": "proletarian", "messaging.operation.type": "send"}
        queues, types = {row.queue for row in rows}, {row.job_type for row in rows}
        if len(queues) == 1:
            attributes["messaging.destination.name"] = _shown(*queues)
        if len(types) == 1:
            attributes["proletarian.job_type"] = _shown(*types)
        if len(rows) == 1:
            attributes["messaging.message.id"] = str(rows[0].job_id)
        else:
            attributes["messaging.batch.message_count"] = len(rows)
        name = f"enqueue {attributes.get('proletarian.job_type', 'jobs')}"
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            mark = mark_of(span.get_span_context()) if may_mark else ""
            yield [row._replace(payload=row.payload + mark) for row in rows] if mark else rows

    @contextmanager
    def running(self, job: ClaimedJob) -> Iterator[None]:
        """Span around an attempt: a trace of its own, since a job may run days later, and more than once."""
        origin = context_in(job.payload)
        with self._tracer.start_as_current_span(
            f"run {names.shown(job.job_type)}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=[Link(origin)] if origin is not None else [],
            attributes={
                "messaging.system": "proletarian",
                "messaging.operation.type": "process",
                "messaging.destination.name": names.shown(job.queue),
                "messaging.message.id": job.job_id,
                "proletarian.job_type": names.shown(job.job_type),
                "proletarian.attempt": job.attempts + 1,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except JobInterrupted:
                span.set_attribute("proletarian.interrupted", True)
                raise
            except BaseException as error:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise


def _shown(stored: str) -> str:
    return names.shown(names.from_stored(stored))


def mark_of(context: SpanContext) -> str:
    """What stands behind the payload of a job that was enqueued in this span; nothing if nobody keeps the span."""
    if not context.is_valid or not context.trace_flags.sampled:
        return ""
    return f"{context.trace_id << 64 | context.span_id:0{MARK_SIZE}b}".translate(AS_SPACES)


def context_in(payload: str) -> SpanContext | None:
    """The span that `mark_of` was given; None if there is no mark behind this payload, as encoded."""
    mark = payload[len(payload.rstrip(" \t")) :]
    if len(mark) != MARK_SIZE:
        return None
    number = int(mark.translate(AS_BITS), 2)
    sampled = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(number >> 64, number & (2**64 - 1), is_remote=True, trace_flags=sampled)
