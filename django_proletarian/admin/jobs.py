"""Jobs in the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db import connections
from django.db.models import F, QuerySet, Value
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_proletarian import conf, job_search, names
from django_proletarian.admin.actions import ON_JOBS, as_actions
from django_proletarian.admin.filters import JobQueueFilter, NextRunFilter, StateFilter, TypeInQueueFilter
from django_proletarian.admin.lists import IndexedChangeList, IsAnyOf, as_uuid
from django_proletarian.admin.stored_jobs import StoredJobAdmin, with_text
from django_proletarian.admin.words import STATES, badge, from_now, how_long, told, told_in_full
from django_proletarian.job_states import JobState, running_jobs, state_of
from django_proletarian.models import ArchivedJob, Job
from django_proletarian.overview_page import count, how_far
from django_proletarian.queues_in_use import queues_in_use


@admin.register(Job)
class JobAdmin(StoredJobAdmin):
    list_display = ("job_type", "state", "next_run", "queue_and_priority", "attempts_made", "enqueued", "short_id")
    list_filter = (StateFilter, JobQueueFilter, TypeInQueueFilter, NextRunFilter)
    ordering = ("queue", "process_at")  # as workers' own index is
    sortable_by = ()
    fields = (
        "job_id",
        "job_type_link",
        "state",
        "queue_link",
        "priority",
        "attempts_made",
        "next_run_in_full",
        "enqueued_in_full",
    )
    readonly_fields = fields
    actions = as_actions(ON_JOBS)
    offers = ON_JOBS

    def bounded(self, cl: IndexedChangeList, queryset: QuerySet[Any]) -> QuerySet[Any]:
        state = cl.chosen("state")
        state = state.value() if state else None
        with connections[self.database].cursor() as cursor:
            tables = conf.settings().tables
            if state == JobState.RUNNING:  # few, and found already
                return with_text(queryset, cl.query)
            by_index = not cl.query and not cl.chosen("job_type")
            if state == JobState.RETRYING and not job_search.has_retrying_index(cursor, tables):
                by_index = False
            chosen = cl.chosen("queue")
            queues = (
                [names.to_stored(queue) for queue in chosen.stored_under()] if chosen else queues_in_use(cursor, tables)
            )
            if by_index:
                # With its queues the server goes through the index to the dates that are asked for, in each of them.
                is_bounded = state or cl.chosen("process_at")
                stored = [names.from_stored(queue) for queue in queues]
                return queryset.filter(queue__in=stored) if is_bounded and not chosen else queryset
            found = job_search.find_jobs(cursor, tables, self._wanted(cl, queues, state))
        if not found.is_complete:
            cl.notice = _(
                "%(count)s jobs were looked at, those that run next in each queue. Choose a queue, a state or a date "
                "to look at others."
            ) % {"count": count(found.looked_at)}
        return queryset.filter(IsAnyOf(F("pk"), Value(found.job_ids)))

    def _wanted(self, cl: IndexedChangeList, queues: list[str], state: str | None) -> job_search.Wanted:
        job_type, date = cl.chosen("job_type"), cl.chosen("process_at")
        since, before = date.chosen.bounds if date and date.chosen else (None, None)
        return job_search.Wanted(
            queues=queues,
            job_type=names.to_stored(names.parse(job_type.value())) if job_type else None,
            text=cl.query or None,
            is_due=None if state is None else state == JobState.DUE,
            was_tried=state == JobState.RETRYING,
            since=since,
            before=before,
        )

    def prepare(self, rows: list[Any]) -> None:
        super().prepare(rows)
        with connections[self.database].cursor() as cursor:
            running = running_jobs(cursor, conf.settings().tables, [job.job_id for job in rows])
        for job in rows:
            job.running = running.get(job.job_id)
            job.state = state_of(
                attempts=job.attempts,
                process_at=job.process_at,
                now=job.looked_at,
                is_running=job.running is not None,
            )

    @admin.display(description=gettext_lazy("state"))
    def state(self, job: Any) -> SafeString:
        return badge(job.state, STATES[job.state])

    @admin.display(description=gettext_lazy("next run"))
    def next_run(self, job: Any) -> SafeString:
        return told(*self._next_run(job))

    @admin.display(description=gettext_lazy("next run"))
    def next_run_in_full(self, job: Any) -> SafeString:
        return told_in_full(*self._next_run(job))

    def _next_run(self, job: Any) -> tuple[datetime, str]:
        if job.running is None:
            return job.process_at, from_now(job.process_at, job.looked_at)
        if job.running.began_at is None:
            return job.process_at, _("runs now")
        words = _("runs now, for %(span)s, at %(worker)s") % {
            "span": how_long(job.looked_at - job.running.began_at),
            "worker": job.running.worker_id,
        }
        if job.running.progress is not None:
            words = f"{words}: {how_far(job.running.progress)}"
        return job.running.began_at, words

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponseRedirect:
        # It finished since the list was made, most likely.
        job_id = as_uuid(object_id)
        if job_id and ArchivedJob._default_manager.filter(pk=job_id).exists():
            self.message_user(request, _("The job has finished, and is in the archive now."))
            name = f"{self.admin_site.name}:{opts.app_label}_{ArchivedJob._meta.model_name}_change"
            return HttpResponseRedirect(reverse(name, args=[job_id]))
        redirect: HttpResponseRedirect = super()._get_obj_does_not_exist_redirect(  # type: ignore[misc] # not in the stubs
            request, opts, object_id
        )
        return redirect
