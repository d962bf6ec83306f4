"""Proletarian's two tables as models: to look at jobs, not to make them (that is `enqueue`) or run them (the worker).

Table names are read from the settings when this module loads, and are fixed from then on.
"""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_proletarian import conf
from django_proletarian.fields import NameField
from django_proletarian.tables import quoted

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

    objects = JobQuerySet.as_manager()

    class Meta(StoredJob.Meta):
        abstract = False
        db_table = quoted(TABLES.job)
        verbose_name = _("job")
        verbose_name_plural = _("jobs")


class ArchivedJob(StoredJob):
    """A job that is finished, as it was after its last attempt."""

    status = NameField(_("status"))
    finished_at = models.DateTimeField(_("finished at"))

    objects = ArchivedJobQuerySet.as_manager()

    class Meta(StoredJob.Meta):
        abstract = False
        db_table = quoted(TABLES.archived_job)
        verbose_name = _("archived job")
        verbose_name_plural = _("archived jobs")
