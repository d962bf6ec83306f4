"""The admin's overview page: what `overview` and `activity` tell, in words and small charts.

Registered by `admin`. The page needs no JavaScript and nothing from elsewhere, and no style or script stands in it, so
that it works under the strictest Content-Security-Policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import connections, models, router, transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.formats import number_format, time_format
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_proletarian import activity, charts, conf, names, overview
from django_proletarian.activity import Throughput, Window, WorkerState
from django_proletarian.models import ArchivedJob, Job
from django_proletarian.overview import Number, QueueState
from django_proletarian.progress import Progress
from django_proletarian.read_only_admin import ReadOnlyAdmin

MOST_QUEUES = 50  # that are drawn
TEMPLATE = "django_proletarian/overview.html"


class OverviewAdmin(ReadOnlyAdmin):
    """A page in place of a list. Who may see it has the permission `django_proletarian.view_overview`."""

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            **page(router.db_for_read(Job), Links(request, self.admin_site)),
            "title": _("Overview"),
            "opts": self.opts,
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name  # as the admin itself does
        return TemplateResponse(request, TEMPLATE, context)


class Links:
    """Addresses of lists and jobs in this admin, for those who may see them."""

    def __init__(self, request: HttpRequest, site: admin.AdminSite) -> None:
        self._request = request
        self._site = site

    def to_list(self, model: type[models.Model], **query: str) -> str | None:
        """The list of a model with filters; None if there is none for this person."""
        address = self._address(model, "changelist")
        return address and f"{address}?{urlencode(query)}"

    def to_row(self, model: type[models.Model], pk: object) -> str | None:
        return self._address(model, "change", pk)

    def _address(self, model: type[models.Model], view: str, *args: object) -> str | None:
        if not self._site.is_registered(model):
            return None
        if not self._site.get_model_admin(model).has_view_permission(self._request):
            return None
        try:
            name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}"
            return reverse(name, args=args, current_app=self._site.name)
        except NoReverseMatch:
            return None


def page(database: str, links: Links) -> dict[str, Any]:
    """What the template shows. Everything is read in one transaction, by queries whose rows are bounded."""
    settings = conf.settings()
    tables, configured = settings.tables, {settings.queue, *settings.queues}
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        overview.prefer_indexes(cursor)
        cursor.execute("SELECT statement_timestamp()")
        [taken_at] = cursor.fetchone()
        states = overview.queue_states(cursor, tables, configured)
        archived = overview.archived_jobs(cursor, tables)
        lately = activity.activity(cursor, tables, taken_at) if overview.has_index(cursor, tables) else None
        workers = activity.workers(cursor, tables)
    queues = {state.queue: state for state in states}
    for queue in lately.day if lately else ():
        queues.setdefault(queue, QueueState(queue=queue, due=Number(0), scheduled=Number(0), oldest_due=None))
    running = None if workers is None else activity.running_by_queue(workers)
    return {
        "taken_at": local(taken_at),
        "queues": [
            {
                "name": names.shown(queue),
                "link": links.to_list(Job, queue=names.shown(queue)),
                "due": in_words(state.due),
                "oldest_due": None if state.oldest_due is None else age(state.oldest_due),
                "scheduled": in_words(state.scheduled),
                "running": None if running is None else count(running[names.shown(queue)]),
                "charts": [chart(lately.hour.get(queue), activity.HOUR), chart(lately.day.get(queue), activity.DAY)]
                if lately
                else [],
            }
            for queue, state in sorted(queues.items())[:MOST_QUEUES]
        ],
        "queues_left_out": max(0, len(queues) - MOST_QUEUES),
        "has_activity": lately is not None,
        "archived": None if archived is None else in_words(Number(archived, is_exact=False)),
        "archive_link": links.to_list(ArchivedJob),
        "failing": [
            {
                "job_type": names.shown(job_type),
                "failures": in_words(failures),
                "link": links.to_list(ArchivedJob, status="failure", job_type=names.shown(job_type)),
            }
            for job_type, failures in (lately.failing if lately else ())
        ],
        "workers": None if workers is None else [worker(state, links) for state in workers],
    }


# -- Charts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One drawing with the words that say the same."""

    title: str
    summary: str
    bars: tuple[charts.Bar, ...]
    rows: tuple[tuple[str, str, str], ...]  # time, succeeded, failed; of the slots in which something finished


def chart(throughput: Throughput | None, window: Window) -> Chart:
    """The chart of a queue. None stands for one of which nothing finished."""
    of_an_hour = window is activity.HOUR
    title = _("Last hour") if of_an_hour else _("Last day")
    if throughput is None:
        return Chart(title=title, summary=_("nothing finished"), bars=(), rows=())
    slots = throughput.slots
    return Chart(
        title=title,
        summary=(
            _("%(succeeded)s succeeded, %(failed)s failed, at most %(most)s in a minute")
            if of_an_hour
            else _("%(succeeded)s succeeded, %(failed)s failed, at most %(most)s in half an hour")
        )
        % {
            "succeeded": in_words(throughput.succeeded),
            "failed": in_words(throughput.failed),
            "most": in_words(max((activity.total([slot.succeeded, slot.failed]) for slot in slots), key=by_value)),
        },
        bars=charts.bars([slot.succeeded.value for slot in slots], [slot.failed.value for slot in slots]),
        rows=tuple(
            (_("%s to %s") % (clock(slot.began), clock(slot.ended)), in_words(slot.succeeded), in_words(slot.failed))
            for slot in slots
            if slot.succeeded.value or slot.failed.value
        ),
    )


def by_value(number: Number) -> int:
    return number.value


# -- Workers ---------------------------------------------------------------------------------------------------------


def worker(state: WorkerState, links: Links) -> Mapping[str, Any]:
    return {
        "name": state.worker_id,
        "is_alive": state.is_alive,
        "silent": age(state.silent),
        "host": state.host,
        "pid": str(state.pid),
        "queues": state.queues,
        "processes": count(state.processes),
        "threads": count(state.threads),
        "version": state.version,
        "started_at": local(state.started_at),
        "succeeded": count(state.succeeded),
        "failed": count(state.failed),
        "running": [
            {
                "job_type": job.job_type,
                "link": links.to_row(Job, job.job_id),
                "attempt": count(job.attempt),
                "since": age(job.seconds),
                "progress": None if job.progress is None else how_far(job.progress),
            }
            for job in state.running
        ],
    }


# -- Words -----------------------------------------------------------------------------------------------------------


def in_words(number: Number) -> str:
    """A number, marked if it is an estimate."""
    return count(number.value) if number.is_exact else _("about %s") % count(number.value)


def count(number: float) -> str:
    """A number as the language writes it."""
    return number_format(Decimal(f"{number:.6g}" if number % 1 else int(number)), force_grouping=True)


def how_far(progress: Progress) -> str:
    """What a handler told of how far its job has come."""
    told = count(progress.done)
    if progress.total is not None:
        told = _("%(done)s of %(total)s") % {"done": told, "total": count(progress.total)}
    percent = "" if progress.percent is None else f" ({progress.percent} %)"
    return told + percent + (f": {progress.message}" if progress.message else "")


def age(seconds: float) -> str:
    """How long, in the largest unit of which there are two; seconds until then."""
    whole = max(0, int(seconds))
    if whole < 120:
        return ngettext("%(count)s second", "%(count)s seconds", whole) % {"count": whole}
    if whole < 2 * 3600:
        return ngettext("%(count)s minute", "%(count)s minutes", whole // 60) % {"count": whole // 60}
    if whole < 2 * 86400:
        return ngettext("%(count)s hour", "%(count)s hours", whole // 3600) % {"count": whole // 3600}
    return ngettext("%(count)s day", "%(count)s days", whole // 86400) % {"count": count(whole // 86400)}


def clock(time: datetime) -> str:
    return time_format(local(time), "H:i")


def local(time: datetime) -> datetime:
    return localtime(time) if is_aware(time) else time
