"""Attempts: a list of their own, and those of one job for its page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import F, Max, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_proletarian.admin.filters import OutcomeFilter
from django_proletarian.admin.lists import IndexedChangeList, ListAdmin, as_uuid, may_read
from django_proletarian.admin.words import badge, how_long, to_the_second, told
from django_proletarian.models import ArchivedJob, Job, JobAttempt
from django_proletarian.overview_page import count

MOST_ATTEMPTS = 50  # of one job
MOST_LOOKED_AT = 50_000  # the newest
MOST_OF_A_LINE = 200  # characters of a message in a list
OUTCOMES = dict(JobAttempt.Outcome.choices)
# Rows with other outcomes tell of no error.
UNSUCCESSFUL = ("retry", "failure", "crash", "timeout", "interrupted", "cancelled")

# No index has this order: by that of the primary key the server might walk through all attempts to find one job's.
NEWEST_FIRST = (F("attempt_id") + 0).desc()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """An attempt as a job's page shows it."""

    number: int
    outcome: SafeString
    worker_id: str
    began: SafeString
    took: str
    exception: str  # its class
    message: str
    traceback: str
    result: str


def attempts_of(database: str, job_id: UUID) -> list[AttemptView]:
    """The last attempts at a job, the newest first; none where there is no table of them that may be read."""
    if not may_read(database, JobAttempt):
        return []
    attempts = JobAttempt._default_manager.using(database).filter(job_id=job_id).order_by(NEWEST_FIRST)
    return [
        AttemptView(
            number=attempt.attempt,
            outcome=badge(attempt.outcome, OUTCOMES.get(attempt.outcome, attempt.outcome)),
            worker_id=attempt.worker_id or "",
            began=told(attempt.started_at, to_the_second(attempt.started_at)),
            took=how_long(attempt.finished_at - attempt.started_at),
            exception=attempt.exception_class or "",
            message=attempt.message or "",
            traceback=attempt.traceback or "",
            result=(attempt.result or "")[:10_000],
        )
        for attempt in attempts[:MOST_ATTEMPTS]
    ]


def last_errors(database: str, job_ids: Iterable[UUID]) -> dict[UUID, str]:
    """The last line of what the last attempt at each of `job_ids` that did not succeed says, by id."""
    asked = list(job_ids)
    if not asked or not may_read(database, JobAttempt):
        return {}
    attempts = (
        JobAttempt._default_manager.using(database)
        .filter(job_id__in=asked, outcome__in=UNSUCCESSFUL)
        .order_by("job_id", NEWEST_FIRST)
        .distinct("job_id")
        .values_list("job_id", "outcome", "exception_class", Left("message", 2000))
    )
    return {job_id: last_line(outcome, exception, message) for job_id, outcome, exception, message in attempts}


def last_line(outcome: str, exception: str | None, message: str | None) -> str:
    """An error in one line, as a traceback ends."""
    lines = [line for line in (message or "").splitlines() if line.strip()]
    last = lines[-1].strip() if lines else ""
    if len(last) > MOST_OF_A_LINE:
        last = f"{last[:MOST_OF_A_LINE]}…"
    if exception:
        return f"{exception.rpartition('.')[2]}: {last}" if last else exception.rpartition(".")[2]
    return last or str(OUTCOMES.get(outcome, outcome))


@admin.register(JobAttempt)
class JobAttemptAdmin(ListAdmin):
    list_display = ("short_job_id", "attempt_number", "outcome_badge", "error", "worker", "began", "took")
    list_display_links = ("short_job_id",)
    list_filter = (OutcomeFilter,)
    ordering = ("-attempt_id",)
    search_fields = ("job_id",)
    search_help_text = gettext_lazy("A job id, whole.")
    fields = (
        *("job", "attempt_number", "outcome_badge", "worker", "started", "finished", "took"),
        *("exception_class", "message_shown", "traceback_shown", "result_shown"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        queryset = super().get_queryset(request)
        if not may_read(self.database, JobAttempt):
            return queryset.none()
        one = request.resolver_match is not None and "object_id" in request.resolver_match.kwargs
        return queryset if one else queryset.defer("traceback", "result")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term:
            return queryset, False
        job_id = as_uuid(search_term)
        return (queryset.filter(job_id=job_id) if job_id else queryset.none()), False

    def narrowed(self, cl: IndexedChangeList, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if queryset.query.is_empty():
            return queryset
        last = JobAttempt._default_manager.using(self.database).aggregate(last=Max("attempt_id"))["last"] or 0
        if not cl.chosen("outcome") or last <= MOST_LOOKED_AT:
            return queryset
        cl.notice = _("The newest %(count)s attempts were looked at, and no more.") % {"count": count(MOST_LOOKED_AT)}
        return queryset.filter(attempt_id__gt=last - MOST_LOOKED_AT)

    @admin.display(description=gettext_lazy("job"))
    def short_job_id(self, attempt: JobAttempt) -> SafeString:
        return format_html('<span title="{}" class="proletarian-id">{}</span>', attempt.job_id, str(attempt.job_id)[:8])

    @admin.display(description=gettext_lazy("job"))
    def job(self, attempt: JobAttempt) -> SafeString:
        """A link to the job, wherever it is now."""
        for model in (Job, ArchivedJob):
            if model._default_manager.using(self.database).filter(pk=attempt.job_id).exists():
                name = f"{self.admin_site.name}:{model._meta.app_label}_{model._meta.model_name}_change"
                return format_html('<a href="{}">{}</a>', reverse(name, args=[attempt.job_id]), attempt.job_id)
        return format_html("{}", attempt.job_id)

    @admin.display(description=gettext_lazy("attempt"))
    def attempt_number(self, attempt: JobAttempt) -> int:
        return attempt.attempt

    @admin.display(description=gettext_lazy("outcome"))
    def outcome_badge(self, attempt: JobAttempt) -> SafeString:
        return badge(attempt.outcome, OUTCOMES.get(attempt.outcome, attempt.outcome))

    @admin.display(description=gettext_lazy("error"))
    def error(self, attempt: JobAttempt) -> str:
        if attempt.exception_class is None and attempt.message is None:
            return ""
        return last_line(attempt.outcome, attempt.exception_class, attempt.message)

    @admin.display(description=gettext_lazy("worker"))
    def worker(self, attempt: JobAttempt) -> str | None:
        return attempt.worker_id

    @admin.display(description=gettext_lazy("began"))
    def began(self, attempt: JobAttempt) -> SafeString:
        return told(attempt.started_at, to_the_second(attempt.started_at))

    started = began

    @admin.display(description=gettext_lazy("finished"))
    def finished(self, attempt: JobAttempt) -> SafeString:
        return told(attempt.finished_at, to_the_second(attempt.finished_at))

    @admin.display(description=gettext_lazy("took"))
    def took(self, attempt: JobAttempt) -> str:
        return how_long(attempt.finished_at - attempt.started_at)

    @admin.display(description=gettext_lazy("message"))
    def message_shown(self, attempt: JobAttempt) -> SafeString | None:
        return preformatted(attempt.message)

    @admin.display(description=gettext_lazy("traceback"))
    def traceback_shown(self, attempt: JobAttempt) -> SafeString | None:
        return preformatted(attempt.traceback)

    @admin.display(description=gettext_lazy("result, as stored"))
    def result_shown(self, attempt: JobAttempt) -> SafeString | None:
        return preformatted(attempt.result)


def preformatted(text: str | None) -> SafeString | None:
    return None if text is None else format_html('<pre class="proletarian-text" tabindex="0">{}</pre>', text)
