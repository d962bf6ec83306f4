"""Spans of OpenTelemetry: made where the setting is on, linked from run to enqueue, and never in anybody's payload."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from django_proletarian import JobInterrupted, RetryStrategy, conf, enqueue, enqueue_many, job_handler
from django_proletarian.connection import ClaimConnection
from django_proletarian.models import Job
from django_proletarian.tracing import MARK_SIZE, context_in, mark_of
from django_proletarian.worker import process_next_job
from tests.conftest import rows

TRACING = {"TRACING": True}
JSON = "django_proletarian.serializers.JSONSerializer"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)  # which a process can do once
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    with override_settings(PROLETARIAN=TRACING):
        yield exporter
    exporter.clear()


def run(claim: ClaimConnection, **changes: Any) -> bool | None:
    options = conf.worker_options(database="default", queues=None, **changes)
    return process_next_job(options, claim, "proletarian/default")


def finished(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


def test_the_run_s_span_is_linked_to_the_enqueue_s(spans: InMemorySpanExporter, claim: ClaimConnection) -> None:
    inside: list[object] = []
    tracer = trace.get_tracer("tests")

    @job_handler("shop/mail")
    def mail(payload: object) -> None:
        inside.append(payload)
        with tracer.start_as_current_span("smtp"):
            pass

    with tracer.start_as_current_span("request"):
        job_id = enqueue("shop/mail", {"order_id": 17})
    assert run(claim)

    assert inside == [{"order_id": 17}]
    found = finished(spans)
    request, sent, ran, smtp = (found[name] for name in ("request", "enqueue shop/mail", "run shop/mail", "smtp"))
    assert (sent.kind, ran.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.parent == request.context
    assert ran.parent is None
    [link] = ran.links
    assert (link.context.trace_id, link.context.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert smtp.parent == ran.context
    assert dict(ran.attributes or {}) == {
        "messaging.system": "proletarian",
        "messaging.operation.type": "process",
        "messaging.destination.name": "proletarian/default",
        "messaging.message.id": str(job_id),
        "proletarian.job_type": "shop/mail",
        "proletarian.attempt": 1,
    }
    assert dict(sent.attributes or {}) == {
        "messaging.system": "proletarian",
        "messaging.operation.type": "send",
        "messaging.destination.name": "proletarian/default",
        "messaging.message.id": str(job_id),
        "proletarian.job_type": "shop/mail",
    }


def test_each_attempt_has_a_span_and_failures_say_why(spans: InMemorySpanExporter, claim: ClaimConnection) -> None:
    job_handler("shop/mail", retry_strategy=RetryStrategy(retries=1))(lambda payload: 1 / 0)
    enqueue("shop/mail")
    assert run(claim)
    assert run(claim)
    ran = [span for span in spans.get_finished_spans() if span.name == "run shop/mail"]
    assert [(span.attributes or {})["proletarian.attempt"] for span in ran] == [1, 2]
    for span in ran:
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ZeroDivisionError")
        assert [event.name for event in span.events] == ["exception"]
        assert len(span.links) == 1


def test_an_attempt_without_a_handler_has_a_span_too(spans: InMemorySpanExporter, claim: ClaimConnection) -> None:
    enqueue("no/handler")
    assert run(claim)
    assert finished(spans)["run no/handler"].status.description == "NoHandler"


def test_an_interrupted_attempt_is_no_error(spans: InMemorySpanExporter, claim: ClaimConnection) -> None:
    @job_handler("shop/mail")
    def mail(payload: object) -> None:
        raise JobInterrupted

    enqueue(mail)
    run(claim)
    span = finished(spans)["run shop/mail"]
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["proletarian.interrupted"] is True


def test_the_span_follows_an_async_handler(spans: InMemorySpanExporter, claim: ClaimConnection) -> None:
    @job_handler("shop/mail")
    async def mail(payload: object) -> None:
        with trace.get_tracer("tests").start_as_current_span("smtp"):
            pass

    enqueue(mail)
    assert run(claim)
    found = finished(spans)
    assert found["smtp"].parent == found["run shop/mail"].context


@pytest.mark.parametrize("number", [2, 3500], ids=["insert", "copy"])
def test_many_jobs_are_enqueued_in_one_span(spans: InMemorySpanExporter, claim: ClaimConnection, number: int) -> None:
    job_handler("shop/mail")(lambda payload: None)
    enqueue_many([("shop/mail", each) for each in range(number)])
    assert run(claim)
    found = finished(spans)
    sent = found["enqueue shop/mail"]
    assert (sent.attributes or {})["messaging.batch.message_count"] == number
    [link] = found["run shop/mail"].links
    assert link.context.span_id == sent.context.span_id


# -- What others read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("serializer", [None, JSON], ids=["transit", "json"])
def test_the_payload_is_the_same_json_to_every_reader(
    spans: InMemorySpanExporter, claim: ClaimConnection, serializer: str | None
) -> None:
    settings = {"SERIALIZER": serializer} if serializer else {}
    with override_settings(PROLETARIAN=settings):
        enqueue("shop/mail", {"order_id": 17})
    with override_settings(PROLETARIAN={**settings, **TRACING}):
        enqueue("shop/mail", {"order_id": 17})
        traced = Job.objects.latest("process_at")
        assert traced.payload == {"order_id": 17}
    plain, marked = [row["payload"] for row in rows("proletarian.job ORDER BY process_at", "payload")]
    assert marked.rstrip(" \t") == plain
    assert len(marked) == len(plain) + MARK_SIZE
    assert json.loads(marked) == json.loads(plain)
    [(equal,)] = [tuple(row.values()) for row in rows("proletarian.job", "count(DISTINCT payload::jsonb::text)")]
    assert equal == 1


def test_a_worker_without_tracing_runs_traced_jobs(spans: InMemorySpanExporter, claim: ClaimConnection) -> None:
    got: list[object] = []
    job_handler("shop/mail")(got.append)
    enqueue("shop/mail", {"order_id": 17})
    with override_settings(PROLETARIAN={}):
        assert run(claim)
    assert got == [{"order_id": 17}]
    assert set(finished(spans)) == {"enqueue shop/mail"}


def test_a_worker_with_tracing_runs_jobs_that_nobody_traced(
    spans: InMemorySpanExporter, claim: ClaimConnection
) -> None:
    job_handler("shop/mail")(lambda payload: None)
    with override_settings(PROLETARIAN={}):
        enqueue("shop/mail")
    assert run(claim)
    assert list(finished(spans)["run shop/mail"].links) == []


class Reversed:
    """A serializer whose text is not JSON, and may not grow."""

    def encode(self, value: object) -> str:
        return str(value)[::-1]

    def decode(self, text: str) -> object:
        return text[::-1]


def test_a_text_that_is_not_json_is_left_alone(spans: InMemorySpanExporter, claim: ClaimConnection) -> None:
    with override_settings(PROLETARIAN={**TRACING, "SERIALIZER": Reversed()}):
        enqueue("shop/mail", "abc")
    assert rows("proletarian.job", "payload") == [{"payload": "cba"}]
    assert "enqueue shop/mail" in finished(spans)


def test_nothing_is_marked_and_nothing_imported_where_the_setting_is_off(committed: None) -> None:
    enqueue("shop/mail", 1)
    assert rows("proletarian.job", "payload") == [{"payload": '["~#\'",1]'}]
    assert conf.tracing() is None


def test_a_span_that_nobody_keeps_leaves_no_mark() -> None:
    assert mark_of(trace.INVALID_SPAN_CONTEXT) == ""
    unsampled = trace.SpanContext(1, 2, is_remote=False, trace_flags=trace.TraceFlags(0))
    assert mark_of(unsampled) == ""


@pytest.mark.parametrize(("trace_id", "span_id"), [(1, 1), (2**128 - 1, 2**64 - 1), (2**127, 2**63)])
def test_a_mark_reads_as_what_it_was_made_of(trace_id: int, span_id: int) -> None:
    context = trace.SpanContext(trace_id, span_id, is_remote=False, trace_flags=trace.TraceFlags(1))
    assert context_in(f'["~:a"]{mark_of(context)}') == trace.SpanContext(
        trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(1)
    )


@pytest.mark.parametrize("text", ["1", "1 ", "1" + " " * 191, "1" + "\t" * 193, ""])
def test_other_spaces_are_no_mark(text: str) -> None:
    assert context_in(text) is None


def test_without_the_extra_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    _, [problem] = conf.read(TRACING)
    assert problem.check_id == "E025"
    assert 'pip install "django-proletarian[tracing]"' in problem.message
