"""Proletarian's two tables as models, and the two that we add.

To look at jobs, not to make them (that is `enqueue`) or run them (the worker).

Table names are read from the settings when this module loads, and are fixed from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_proletarian import conf
from django_proletarian.fields import NameField
from django_proletarian.tables import quoted

if TYPE_CHECKING:
    from django_proletarian.typing_managers import QuerySetManager

TABLES = conf.tables()


class JobQuerySet(models.QuerySet["Job"]):
    """Jobs in the queue, by the database's clock."""

    def queue(self, name: str) -> Self:
        """The jobs of one queue."""
        return self.filter(queue=name)

    def due(self) -> Self:
        """The jobs that a worker may take, or has taken, now; next one first."""
        return self.filter(process_at__lte=Now()).order_by("process_at")

    def scheduled(self) -> Self:
        """The jobs that are due later, retries included; next one first."""
        return self.filter(process_at__gt=Now()).order_by("process_at")


class ArchivedJobQuerySet(models.QuerySet["ArchivedJob"]):
    """Finished jobs."""

    def queue(self, name: str) -> Self:
        """The jobs of one queue."""
        return self.filter(queue=name)

    def succeeded(self) -> Self:
        """The jobs whose last attempt came back."""
        return self.filter(status="success")

    def failed(self) -> Self:
        """The jobs that were given up."""
        return self.filter(status="failure")


if TYPE_CHECKING:
    # What `as_manager` makes, for type checkers without the plugin of django-stubs.
    class JobManager(QuerySetManager["Job", JobQuerySet]):
        def queue(self, name: str) -> JobQuerySet: ...
        def due(self) -> JobQuerySet: ...
        def scheduled(self) -> JobQuerySet: ...

    class ArchivedJobManager(QuerySetManager["ArchivedJob", ArchivedJobQuerySet]):
        def queue(self, name: str) -> ArchivedJobQuerySet: ...
        def succeeded(self) -> ArchivedJobQuerySet: ...
        def failed(self) -> ArchivedJobQuerySet: ...


class StoredJob(models.Model):
    """What both tables have."""

    job_id = models.UUIDField(_("job id"), primary_key=True)
    queue = NameField(_("queue"))
    job_type = NameField(_("job type"))
    payload_text = models.TextField(_("payload, as stored"), db_column="payload")
    attempts = models.IntegerField(_("attempts"))
    enqueued_at = models.DateTimeField(_("enqueued at"))
    process_at = models.DateTimeField(_("process at"))

    class Meta:
        abstract = True
        # Tables in a schema of their own are out of Django's sight: it would try to create them at every
        # `migrate --run-syncdb`. The migration makes them, and `apps` does where migrations are switched off.
        managed = False
        required_db_vendor = "postgresql"

    def __str__(self) -> str:
        return f"{self.job_type} {self.job_id}"

    @property
    def payload(self) -> object:
        """The payload, decoded by the SERIALIZER setting's serializer. Raises PayloadDecodeError if it can't be."""
        return conf.serializer().decode(self.payload_text)


class Job(StoredJob):
    """A job in the queue."""

    objects: ClassVar[JobManager] = JobQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(StoredJob.Meta):
        abstract = False
        db_table = quoted(TABLES.job)
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = (
            ("run_job", _("Can run a job now")),
            ("reschedule_job", _("Can reschedule a job")),
            ("move_job", _("Can move a job to another queue")),
            ("cancel_job", _("Can cancel a job")),
        )


class ArchivedJob(StoredJob):
    """A job that is finished, as it was after its last attempt."""

    status = NameField(_("status"))
    finished_at = models.DateTimeField(_("finished at"))

    objects: ClassVar[ArchivedJobManager] = ArchivedJobQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(StoredJob.Meta):
        abstract = False
        db_table = quoted(TABLES.archived_job)
        verbose_name = _("archived job")
        verbose_name_plural = _("archived jobs")
        permissions = (
            ("rerun_archivedjob", _("Can run an archived job again")),
            ("copy_archivedjob", _("Can run a copy of an archived job")),
        )


class Overview(Job):
    """The overview page in the admin: a place in its index, a permission, `view_overview`, and no rows of its own."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name = _("overview")
        verbose_name_plural = _("overview")


class JobAttempt(models.Model):
    """What became of one attempt at a job, which is in the queue or in the archive."""

    class Outcome(models.TextChoices):
        SUCCESS = "success", _("success")
        RETRY = "retry", _("retry")  # it failed, and the job runs again
        FAILURE = "failure", _("failure")  # it failed, and the job was given up
        CRASH = "crash", _("crash")  # its process died
        TIMEOUT = "timeout", _("timeout")
        INTERRUPTED = "interrupted", _("interrupted")  # by a stop; it does not count
        CHECKPOINT = "checkpoint", _("checkpoint")  # no end: what the attempt has saved is in `result`
        CANCELLED = "cancelled", _("cancelled")  # it never began: a person archived the job

    attempt_id = models.BigAutoField(_("attempt id"), primary_key=True)
    job_id = models.UUIDField(_("job id"))
    attempt = models.IntegerField(_("attempt"))
    worker_id = models.TextField(_("worker"), null=True)  # noqa: DJ001 # None if no worker was at it
    started_at = models.DateTimeField(_("started at"))
    finished_at = models.DateTimeField(_("finished at"))
    outcome = models.TextField(_("outcome"), choices=Outcome.choices)
    # None where there is none, unlike a message that is empty.
    exception_class = models.TextField(_("exception"), null=True)  # noqa: DJ001
    message = models.TextField(_("message"), null=True)  # noqa: DJ001
    traceback = models.TextField(_("traceback"), null=True)  # noqa: DJ001
    result = models.TextField(_("result, as stored"), null=True)  # noqa: DJ001

    class Meta:
        managed = False
        required_db_vendor = "postgresql"
        db_table = quoted(TABLES.job_attempt)
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")

    def __str__(self) -> str:
        return f"{self.attempt} of {self.job_id}: {self.outcome}"


class Worker(models.Model):
    """A worker process, as it was at its last heartbeat."""

    process_id = models.UUIDField(_("process id"), primary_key=True)
    worker_id = models.TextField(_("worker"))
    host = models.TextField(_("host"))
    pid = models.IntegerField(_("process"))
    queues = models.JSONField(_("queues"))
    processes = models.IntegerField(_("processes"))
    threads = models.IntegerField(_("threads"))
    version = models.TextField(_("version"))
    started_at = models.DateTimeField(_("started at"))
    heartbeat_at = models.DateTimeField(_("heartbeat at"))
    running = models.JSONField(_("running jobs"))
    succeeded = models.BigIntegerField(_("succeeded"))
    failed = models.BigIntegerField(_("failed"))

    class Meta:
        managed = False
        required_db_vendor = "postgresql"
        db_table = quoted(TABLES.worker)
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return f"{self.worker_id} ({self.host}, {self.pid})"
