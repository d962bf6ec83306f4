"""Workers: which are alive, and what they run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_proletarian.admin.lists import ListAdmin, may_read
from django_proletarian.admin.stored_jobs import database_now
from django_proletarian.admin.words import badge, from_now, how_long, told
from django_proletarian.models import Job, Worker
from django_proletarian.overview_page import how_far
from django_proletarian.progress import Progress
from django_proletarian.worker_row import DEAD_AFTER

MOST_SHOWN = 500  # jobs of one process


@admin.register(Worker)
class WorkerAdmin(ListAdmin):
    list_display = (
        *("worker_name", "state", "host_and_process", "queues_shown", "size", "running_count"),
        *("succeeded_count", "failed_count", "heartbeat"),
    )
    list_display_links = ("worker_name",)
    ordering = ("process_id",)
    fields = (
        *("worker_name", "state", "host_and_process", "queues_shown", "size", "version_shown", "started", "heartbeat"),
        *("succeeded_count", "failed_count", "running_jobs"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        queryset = super().get_queryset(request)
        return queryset if may_read(self.database, Worker) else queryset.none()

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        worker = super().get_object(request, object_id, from_field)
        if worker is not None:
            self.prepare([worker])
        return worker

    def prepare(self, rows: list[Any]) -> None:
        now = database_now(self.database)
        for row in rows:
            row.looked_at = now
        rows.sort(key=lambda row: (row.worker_id, row.host, row.pid))

    @admin.display(description=gettext_lazy("worker"))
    def worker_name(self, worker: Worker) -> str:
        return worker.worker_id

    @admin.display(description=gettext_lazy("state"))
    def state(self, worker: Any) -> SafeString:
        if worker.looked_at - worker.heartbeat_at > timedelta(seconds=DEAD_AFTER):
            return badge("dead", _("dead"))
        return badge("alive", _("alive"))

    @admin.display(description=gettext_lazy("host, process"))
    def host_and_process(self, worker: Worker) -> str:
        return f"{worker.host}, {worker.pid}"

    @admin.display(description=gettext_lazy("queues"))
    def queues_shown(self, worker: Worker) -> str:
        return ", ".join(str(queue) for queue in worker.queues)

    @admin.display(description=gettext_lazy("processes × threads"))
    def size(self, worker: Worker) -> str:
        return f"{worker.processes} × {worker.threads}"

    @admin.display(description=gettext_lazy("running jobs"))
    def running_count(self, worker: Worker) -> int:
        return len(worker.running)

    @admin.display(description=gettext_lazy("succeeded"))
    def succeeded_count(self, worker: Worker) -> int:
        return worker.succeeded

    @admin.display(description=gettext_lazy("failed"))
    def failed_count(self, worker: Worker) -> int:
        return worker.failed

    @admin.display(description=gettext_lazy("heartbeat"))
    def heartbeat(self, worker: Any) -> SafeString:
        return told(worker.heartbeat_at, from_now(worker.heartbeat_at, worker.looked_at))

    @admin.display(description=gettext_lazy("started"))
    def started(self, worker: Any) -> SafeString:
        return told(worker.started_at, from_now(worker.started_at, worker.looked_at))

    @admin.display(description=gettext_lazy("version"))
    def version_shown(self, worker: Worker) -> str:
        return worker.version

    @admin.display(description=gettext_lazy("running jobs"))
    def running_jobs(self, worker: Worker) -> str:
        if not worker.running:
            return _("none")
        name = f"{self.admin_site.name}:{Job._meta.app_label}_{Job._meta.model_name}_change"
        items = (
            (
                reverse(name, args=[job["job_id"]]),
                job["job_type"],
                _("for %(span)s, attempt %(attempt)s")
                % {"span": how_long(timedelta(seconds=float(job["seconds"]))), "attempt": job["attempt"]}
                + ("" if (progress := Progress.from_json(job.get("progress"))) is None else f": {how_far(progress)}"),
            )
            for job in worker.running[:MOST_SHOWN]
        )
        return format_html('<ul class="proletarian-jobs">{}</ul>', format_html_join("", ROW, items))


ROW = '<li><a href="{}">{}</a> {}</li>'
