"""Jobs and archived jobs in the admin: to look at, not to change."""

from __future__ import annotations

import pprint
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.formats import date_format
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_proletarian import conf, handlers, names
from django_proletarian.errors import PayloadDecodeError
from django_proletarian.models import ArchivedJob, Job, Overview, StoredJob
from django_proletarian.overview_page import OverviewAdmin, local
from django_proletarian.read_only_admin import ReadOnlyAdmin

MOST_COUNTED = 10_000
MOST_SHOWN = 20_000  # characters of a payload


admin.site.register(Overview, OverviewAdmin)


class CappedPaginator(Paginator):  # type: ignore[type-arg] # generic in the stubs only
    """Counts no further than `MOST_COUNTED`: a full count of a big archive reads all of it."""

    object_list: QuerySet[Any]

    @cached_property
    def count(self) -> int:
        return self.object_list.order_by()[:MOST_COUNTED].count()


class NameFilter(admin.SimpleListFilter):
    """A filter by names that this process knows, since asking the table for all that it holds would read all of it."""

    def known(self) -> set[str]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        # A name that came in the address is offered too, so that any queue or type can be looked at.
        asked = {names.parse(value)} if (value := self.value()) else set()
        return [(names.shown(name), names.shown(name)) for name in sorted(self.known() | asked)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(**{str(self.parameter_name): names.parse(value)}) if value else queryset


class QueueFilter(NameFilter):
    title = _("queue")
    parameter_name = "queue"

    def known(self) -> set[str]:
        configured = conf.settings()
        own = {handler.queue for handler in handlers.registered() if handler.queue is not None}
        return {configured.queue, *configured.queues, *own}


class JobTypeFilter(NameFilter):
    title = _("job type")
    parameter_name = "job_type"

    def known(self) -> set[str]:
        return {handler.job_type for handler in handlers.registered()}


class StatusFilter(admin.SimpleListFilter):
    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        return [("success", _("success")), ("failure", _("failure"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(status=self.value()) if self.value() else queryset


class StoredJobAdmin(ReadOnlyAdmin):
    """What both tables' pages have in common."""

    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they would count the whole table once for each
    list_per_page = 50
    search_fields = ("job_id",)
    search_help_text = _("A job id, whole.")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        queryset = super().get_queryset(request)
        # A list shows no payloads, and they can be long.
        one_job = request.resolver_match is not None and "object_id" in request.resolver_match.kwargs
        return queryset if one_job else queryset.defer("payload_text")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term:
            return queryset, False
        try:
            return queryset.filter(pk=UUID(search_term.strip())), False
        except ValueError:
            return queryset.none(), False

    # The admin's own format leaves seconds out, and most jobs live for less than a minute.
    @admin.display(description=_("enqueued at"), ordering="enqueued_at")
    def enqueued_at_second(self, job: StoredJob) -> str:
        return to_the_second(job.enqueued_at)

    @admin.display(description=_("process at"), ordering="process_at")
    def process_at_second(self, job: StoredJob) -> str:
        return to_the_second(job.process_at)

    @admin.display(description=_("job id"), ordering="job_id")
    def short_id(self, job: StoredJob) -> SafeString:
        return format_html('<span title="{}">{}…</span>', job.job_id, str(job.job_id)[:8])

    @admin.display(description=_("payload"))
    def pretty_payload(self, job: StoredJob) -> SafeString:
        try:
            text = pretty(job.payload)
        except (PayloadDecodeError, RecursionError) as error:
            text = f"{error}\n\n{job.payload_text}"
        if len(text) > MOST_SHOWN:
            text = f"{text[:MOST_SHOWN]}\n…"
        return format_html('<pre style="white-space: pre-wrap; margin: 0; padding: 0">{}</pre>', text)


def to_the_second(time: datetime) -> str:
    """A date of a job in the viewer's time zone."""
    return date_format(local(time), "Y-m-d H:i:s")


def pretty(payload: object) -> str:
    """A payload in lines; keywords as the texts that they equal."""
    return PayloadPrinter(width=100, sort_dicts=False).pformat(payload)


class PayloadPrinter(pprint.PrettyPrinter):
    """Shows every kind of str as a str, since that is how a handler uses it."""

    def format(
        self,
        object: object,  # noqa: A002 # the library's name for it
        context: dict[int, int],
        maxlevels: int,
        level: int,  # its name in the library
    ) -> tuple[str, bool, bool]:
        if isinstance(object, str):
            return repr(str(object)), True, False
        return super().format(object, context, maxlevels, level)


@admin.register(Job)
class JobAdmin(StoredJobAdmin):
    list_display = ("job_type", "queue", "attempts", "process_at_second", "enqueued_at_second", "short_id")
    list_display_links = ("job_type", "short_id")
    list_filter = (QueueFilter, JobTypeFilter)
    ordering = ("process_at",)
    fields = (
        "job_id",
        "job_type",
        "queue",
        "attempts",
        "enqueued_at_second",
        "process_at_second",
        "pretty_payload",
    )
    readonly_fields = fields


@admin.register(ArchivedJob)
class ArchivedJobAdmin(StoredJobAdmin):
    list_display = ("job_type", "status", "queue", "attempts", "finished_at_second", "enqueued_at_second", "short_id")
    list_display_links = ("job_type", "short_id")
    list_filter = (StatusFilter, QueueFilter, JobTypeFilter)

    @admin.display(description=_("finished at"), ordering="finished_at")
    def finished_at_second(self, job: ArchivedJob) -> str:
        return to_the_second(job.finished_at)

    ordering = ("-finished_at",)
    fields = (
        "job_id",
        "job_type",
        "status",
        "queue",
        "attempts",
        "enqueued_at_second",
        "process_at_second",
        "finished_at_second",
        "pretty_payload",
    )
    readonly_fields = fields
