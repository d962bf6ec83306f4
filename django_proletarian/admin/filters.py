"""The lists' filters: none of them asks a table for all the values that it holds.

Each adds its condition to the list's query; what of it no index serves, the list narrows down further (see `lists`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db import connections
from django.db.backends.utils import CursorWrapper
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _

from django_proletarian import conf, handlers, job_search, names
from django_proletarian.admin.spans import Span, spans_within, years_around
from django_proletarian.admin.words import STATES, STATUSES
from django_proletarian.job_states import JobState, all_running_jobs
from django_proletarian.models import JobAttempt
from django_proletarian.queues_in_use import queues_in_use
from django_proletarian.tables import Tables

MOST_OFFERED = 200  # names


class Filter(admin.SimpleListFilter):
    """A filter that is shown even if there is nothing to choose, as Django would not apply it otherwise."""

    def has_output(self) -> bool:
        return True

    def value(self) -> str | None:
        # An empty value is none, as a form sends it.
        return super().value() or None


class NameFilter(Filter):
    """A filter by names of which some are known without asking the table."""

    def known(self, database: str) -> set[str]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        # A name that came in the address is offered too, so that any queue or type can be looked at.
        asked = {names.shown(names.parse(value))} if (value := self.value()) else set()
        known = {names.shown(name) for name in self.known(model_admin.database)}
        return [(name, name) for name in [*sorted(known)[:MOST_OFFERED], *sorted(asked - known)]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(**{str(self.parameter_name): names.parse(value)}) if value else queryset


class QueueFilter(NameFilter):
    """A queue with all its priorities, or one of them: "mail" or "mail+10"."""

    title = _("queue")
    parameter_name = "queue"

    def known(self, database: str) -> set[str]:
        return known_queues(database)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(queue__in=self.stored_under()) if self.value() else queryset

    def stored_under(self) -> list[str]:
        """The names under which the jobs of the chosen queue may be stored, as Python has them."""
        chosen = names.parse(self.value() or "")
        return [chosen] if conf.queue_and_priority(chosen)[1] else [chosen, *conf.levels_of([chosen])]


class JobQueueFilter(QueueFilter):
    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        self.database = model_admin.database
        return super().lookups(request, model_admin)

    def stored_under(self) -> list[str]:
        # Only those that have jobs: an index is asked about each.
        chosen, *levels = super().stored_under()
        in_use = set(names_in_use(self.database))
        return [chosen, *(level for level in levels if level in in_use)]


def known_queues(database: str) -> set[str]:
    """The queues that have jobs, and those that the settings and the handlers name; without priorities."""
    return {*conf.own_queues(), *(conf.queue_and_priority(queue)[0] for queue in names_in_use(database))}


def names_in_use(database: str) -> list[str]:
    with connections[database].cursor() as cursor:
        stored = queues_in_use(cursor, conf.settings().tables)
    return [names.from_stored(queue) for queue in stored]


class JobTypeFilter(NameFilter):
    """The types that handlers here have, and those that the first rows of the table have: others may run them."""

    title = _("job type")
    parameter_name = "job_type"

    def known(self, database: str) -> set[str]:
        tables = conf.settings().tables
        with connections[database].cursor() as cursor:
            seen = self.seen(cursor, tables)
        return {handler.job_type for handler in handlers.registered()} | {names.from_stored(stored) for stored in seen}

    def seen(self, cursor: CursorWrapper, tables: Tables) -> list[str]:
        return job_search.types_lately(cursor, tables)


class TypeInQueueFilter(JobTypeFilter):
    def seen(self, cursor: CursorWrapper, tables: Tables) -> list[str]:
        return job_search.types_ahead(cursor, tables, queues_in_use(cursor, tables))


class StateFilter(Filter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        self.database = model_admin.database
        return [
            (JobState.DUE.value, STATES[JobState.DUE]),
            (JobState.RUNNING.value, STATES[JobState.RUNNING]),
            # As the models, the status and the metrics count them.
            (JobState.SCHEDULED.value, _("scheduled, retries too")),
            (JobState.RETRYING.value, STATES[JobState.RETRYING]),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case None:
                return queryset
            case JobState.RUNNING:
                return queryset.filter(pk__in=self._running())
            case JobState.DUE:
                return queryset.filter(process_at__lte=Now()).exclude(pk__in=self._running())
            case JobState.SCHEDULED:
                return self._not_yet_due(queryset)
            case JobState.RETRYING:
                return self._not_yet_due(queryset).filter(attempts__gt=0)
            case _:
                return queryset.none()

    def _not_yet_due(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        # The row of a job that a worker has leased looks as if it were scheduled.
        return queryset.filter(process_at__gt=Now()).exclude(pk__in=self._running())

    def _running(self) -> list[Any]:
        tables = conf.settings().tables
        with connections[self.database].cursor() as cursor:
            return list(all_running_jobs(cursor, tables, queues_in_use(cursor, tables)))


class StatusFilter(Filter):
    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        return list(STATUSES.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(status=self.value()) if self.value() else queryset


class OutcomeFilter(Filter):
    title = _("outcome")
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        return list(JobAttempt.Outcome.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(outcome=self.value()) if self.value() else queryset


# -- Dates -----------------------------------------------------------------------------------------------------------


class DateFilter(Filter):
    """A year, a month in it, a day, an hour, each offered if something is there: one look into an index for each."""

    field = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        self.database = model_admin.database
        chosen = Span.parse(self.value() or "")
        self.is_nonsense = bool(self.value()) and chosen is None
        self.chosen = chosen
        spans = spans_within(chosen) if chosen else years_around(datetime.now().year)
        return [(span.key, span.words) for span in self.present(spans)] if spans else []

    def present(self, spans: list[Span]) -> list[Span]:
        """Those of `spans` in which there is something."""
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.is_nonsense:
            return queryset.none()
        if self.chosen is None:
            return queryset
        since, before = self.chosen.bounds
        return queryset.filter(**{f"{self.field}__gte": since, f"{self.field}__lt": before})

    def choices(self, changelist: Any) -> Iterator[Any]:
        def link(key: str | None) -> str:
            return str(changelist.get_query_string({self.parameter_name: key} if key else {}, [self.parameter_name]))

        yield {"selected": self.chosen is None, "query_string": link(None), "display": _("Any date")}
        for span in self.chosen.way_down if self.chosen else []:
            yield {"selected": span == self.chosen, "query_string": link(span.key), "display": f"« {span.words}"}
        for key, words in self.lookup_choices:
            yield {"selected": False, "query_string": link(str(key)), "display": words}

    def words(self) -> str:
        """The chosen span, for a sentence."""
        return self.chosen.words if self.chosen else date_format(datetime.now())


class NextRunFilter(DateFilter):
    title = _("next run")
    parameter_name = "process_at"
    field = "process_at"

    def present(self, spans: list[Span]) -> list[Span]:
        tables = conf.settings().tables
        with connections[self.database].cursor() as cursor:
            queues = queues_in_use(cursor, tables)
            found = job_search.spans_with_jobs(cursor, tables, [span.bounds for span in spans], queues)
        return [span for span in spans if span.bounds in found]


class FinishedFilter(DateFilter):
    title = _("finished")
    parameter_name = "finished_at"
    field = "finished_at"

    def present(self, spans: list[Span]) -> list[Span]:
        with connections[self.database].cursor() as cursor:
            found = job_search.spans_with_archived_jobs(cursor, conf.settings().tables, [span.bounds for span in spans])
        return [span for span in spans if span.bounds in found]
