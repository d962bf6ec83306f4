"""Archived jobs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import connections
from django.db.models import QuerySet
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_proletarian import conf, job_search
from django_proletarian.admin.actions import ON_ARCHIVED_JOBS, as_actions
from django_proletarian.admin.attempts import last_errors
from django_proletarian.admin.filters import FinishedFilter, JobTypeFilter, QueueFilter, StatusFilter
from django_proletarian.admin.lists import IndexedChangeList
from django_proletarian.admin.stored_jobs import StoredJobAdmin, with_text
from django_proletarian.admin.words import STATUSES, badge, from_now, how_long, to_the_second, told, told_in_full
from django_proletarian.models import ArchivedJob
from django_proletarian.overview_page import count


@admin.register(ArchivedJob)
class ArchivedJobAdmin(StoredJobAdmin):
    list_display = (
        *("job_type", "status_badge", "finished", "error", "queue_and_priority", "attempts_made", "duration"),
        *("enqueued", "short_id"),
    )
    list_filter = (StatusFilter, QueueFilter, JobTypeFilter, FinishedFilter)
    ordering = ("-finished_at",)
    sortable_by = ("finished",)
    fields = (
        *("job_id", "job_type_link", "status_badge", "queue_link", "priority", "attempts_made", "duration"),
        *("finished_in_full", "last_due", "enqueued_in_full"),
    )
    readonly_fields = fields
    actions = as_actions(ON_ARCHIVED_JOBS)
    offers = ON_ARCHIVED_JOBS

    def bounded(self, cl: IndexedChangeList, queryset: QuerySet[Any]) -> QuerySet[Any]:
        status, date = cl.chosen("status"), cl.chosen("finished_at")
        since, before = date.chosen.bounds if date and date.chosen else (None, None)
        with connections[self.database].cursor() as cursor:
            tables = conf.settings().tables
            failures = bool(status) and status.value() == "failure" and job_search.has_failure_index(cursor, tables)
            if not (cl.query or cl.chosen("queue") or cl.chosen("job_type") or (status and not failures)):
                return queryset
            most = job_search.MOST_SEARCHED if cl.query else job_search.MOST_LOOKED_AT
            end = job_search.end_of_window(cursor, tables, since=since, before=before, failures=failures, most=most)
        queryset = with_text(queryset, cl.query)
        if end is None:
            return queryset
        cl.notice = _("The newest %(count)s were looked at, back to %(date)s. Choose a date to look further back.") % {
            "count": count(most),
            "date": to_the_second(end),
        }
        return queryset.filter(finished_at__gt=end)

    def prepare(self, rows: list[Any]) -> None:
        super().prepare(rows)
        failed = [job.job_id for job in rows if job.status == "failure"]
        errors = last_errors(self.database, failed)
        for job in rows:
            job.error = errors.get(job.job_id, "")

    @admin.display(description=gettext_lazy("status"))
    def status_badge(self, job: ArchivedJob) -> SafeString:
        return badge(job.status, STATUSES.get(job.status, job.status))

    @admin.display(description=gettext_lazy("error"))
    def error(self, job: Any) -> str:
        return str(job.error)

    @admin.display(description=gettext_lazy("from due to finished"))
    def duration(self, job: ArchivedJob) -> str:
        return how_long(job.finished_at - job.process_at)

    @admin.display(description=gettext_lazy("finished"), ordering="finished_at")
    def finished(self, job: Any) -> SafeString:
        return told(job.finished_at, from_now(job.finished_at, job.looked_at))

    @admin.display(description=gettext_lazy("finished"))
    def finished_in_full(self, job: Any) -> SafeString:
        return told_in_full(job.finished_at, from_now(job.finished_at, job.looked_at))

    @admin.display(description=gettext_lazy("last due"))
    def last_due(self, job: Any) -> SafeString:
        return told_in_full(job.process_at, from_now(job.process_at, job.looked_at))
