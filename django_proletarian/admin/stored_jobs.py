"""What the pages of jobs and of archived jobs have in common."""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db import connections
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_proletarian import conf, handlers, names
from django_proletarian.admin.actions import ActingAdmin
from django_proletarian.admin.attempts import AttemptView, attempts_of
from django_proletarian.admin.lists import IndexedChangeList, ListAdmin, as_uuid
from django_proletarian.admin.payloads import readable
from django_proletarian.admin.words import from_now, told, told_in_full
from django_proletarian.errors import PayloadDecodeError
from django_proletarian.job_search import MOST_OF_A_PAYLOAD
from django_proletarian.models import StoredJob
from django_proletarian.overview_page import count

MOST_DECODED = 1_000_000  # characters of a payload; a longer one is not decoded for a look
MOST_RAW = 100_000  # characters


class StoredJobAdmin(ActingAdmin, ListAdmin):
    list_display_links = ("job_type",)
    search_fields = ("job_id",)
    search_help_text = gettext_lazy("A job id, whole; or, with a queue chosen, a text in the payload as it is stored.")
    change_form_template = "admin/django_proletarian/stored_job.html"
    now: datetime  # of the row that is shown, by the database's clock

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # No page loads a whole payload: they can be long.
        return super().get_queryset(request).defer("payload_text")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        # A text in payloads is looked for by `bounded`.
        job_id = as_uuid(search_term)
        return (queryset.filter(pk=job_id) if job_id else queryset), False

    def narrowed(self, cl: IndexedChangeList, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if cl.query and not cl.chosen("queue"):
            cl.notice = _("Choose a queue first: a text in payloads is looked for within one queue.")
            return queryset.none()
        return self.bounded(cl, queryset)

    def bounded(self, cl: IndexedChangeList, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """`narrowed`, of a list in which a text is looked for within a queue, if at all."""
        return queryset

    def prepare(self, rows: list[Any]) -> None:
        now = database_now(self.database)
        for row in rows:
            row.looked_at = now

    # -- Columns -----------------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("queue"))
    def queue_and_priority(self, job: StoredJob) -> str:
        queue, priority = conf.queue_and_priority(job.queue)
        shown = names.shown(queue)
        return _("%(queue)s, priority %(priority)s") % {"queue": shown, "priority": priority} if priority else shown

    @admin.display(description=gettext_lazy("priority"))
    def priority(self, job: StoredJob) -> int:
        return conf.queue_and_priority(job.queue)[1]

    @admin.display(description=gettext_lazy("enqueued"))
    def enqueued(self, job: Any) -> SafeString:
        return told(job.enqueued_at, from_now(job.enqueued_at, job.looked_at))

    @admin.display(description=gettext_lazy("enqueued"))
    def enqueued_in_full(self, job: Any) -> SafeString:
        return told_in_full(job.enqueued_at, from_now(job.enqueued_at, job.looked_at))

    @admin.display(description=gettext_lazy("attempts"))
    def attempts_made(self, job: StoredJob) -> int:
        return job.attempts

    @admin.display(description=gettext_lazy("job id"))
    def short_id(self, job: StoredJob) -> SafeString:
        return format_html('<span title="{}" class="proletarian-id">{}</span>', job.job_id, str(job.job_id)[:8])

    # -- One job -----------------------------------------------------------------------------------------------------

    @admin.display(description=gettext_lazy("job type"))
    def job_type_link(self, job: StoredJob) -> SafeString:
        return self._link("job_type", job.job_type)

    @admin.display(description=gettext_lazy("queue"))
    def queue_link(self, job: StoredJob) -> SafeString:
        return self._link("queue", conf.queue_and_priority(job.queue)[0])

    def _link(self, parameter: str, name: str) -> SafeString:
        shown = names.shown(name)
        address = reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_changelist")
        return format_html('<a href="{}?{}">{}</a>', address, urlencode({parameter: shown}), shown)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        job = super().get_object(request, object_id, from_field)
        if job is not None:
            self.prepare([job])
        return job

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {**(extra_context or {})}
        job_id = as_uuid(object_id)
        if job_id and self.has_view_permission(request):
            context |= {**self.about(job_id), "offers": self.offered(request)}
        return super().change_view(request, object_id, form_url, context)

    def about(self, job_id: UUID) -> dict[str, Any]:
        """What the page shows beside the row's short values."""
        found = self.model._default_manager.filter(pk=job_id).values_list(
            "job_type", Left("payload_text", MOST_DECODED + 1)
        )
        for job_type, payload in found:
            attempts: list[AttemptView] = attempts_of(self.database, job_id)
            return {**payload_shown(payload), **handler_shown(job_type), "attempts": attempts}
        return {}


def with_text(queryset: QuerySet[Any], text: str) -> QuerySet[Any]:
    """Those whose payload has `text` in it as it is stored, in large or small letters; all of them for an empty one."""
    if not text:
        return queryset
    # The server decompresses no more of a long payload than that.
    found: QuerySet[Any] = queryset.alias(searched=Left("payload_text", MOST_OF_A_PAYLOAD)).filter(
        searched__icontains=text
    )
    return found


def database_now(database: str) -> datetime:
    with connections[database].cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now


def payload_shown(stored: str) -> dict[str, str]:
    """The payload in a readable form, or why there is none, and as it is stored."""
    raw = stored if len(stored) <= MOST_RAW else f"{stored[:MOST_RAW]}\n…"
    if len(stored) > MOST_DECODED:
        reason = _("It is longer than %(count)s characters.") % {"count": count(MOST_DECODED)}
        return {"payload": "", "payload_problem": reason, "raw_payload": raw}
    try:
        return {"payload": readable(conf.serializer().decode(stored)), "payload_problem": "", "raw_payload": raw}
    except (PayloadDecodeError, RecursionError) as error:
        return {"payload": "", "payload_problem": str(error), "raw_payload": raw}


def handler_shown(job_type: str) -> dict[str, str]:
    """The dotted path and the docstring of the function that handles a type here; empty texts if none does."""
    handler = handlers.handler_of(job_type)
    function = handler.function if handler is not None else conf.resolved("HANDLER")
    if function is None:
        return {"handler_path": "", "handler_doc": ""}
    path = handler.path if handler is not None else f"{function.__module__}.{function.__qualname__}"
    return {"handler_path": path, "handler_doc": inspect.getdoc(function) or ""}
