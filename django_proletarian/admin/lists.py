"""What the lists of both tables have in common: counts that end, orders that an index has, windows, and a notice.

A list asks for nothing that makes the server read a whole table, however big that is. What no index serves is looked
for in a window of rows; the notice above the list says so, and how to look elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db import connections, router, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import BooleanField, Func, Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from django_proletarian.overview import prefer_indexes
from django_proletarian.read_only_admin import ReadOnlyAdmin

MOST_COUNTED = 20_000


@contextmanager
def reading_by_index(database: str) -> Iterator[None]:
    """A transaction in which the server walks along indexes, also if a table has grown since it was analyzed."""
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        walk_along_indexes(cursor)
        yield


def walk_along_indexes(cursor: CursorWrapper) -> None:
    """Until the transaction ends: a table that looks small would be read whole, or sorted, before the first row."""
    prefer_indexes(cursor)
    cursor.execute("SET LOCAL enable_bitmapscan = off")


class CappedPaginator(Paginator):  # type: ignore[type-arg] # generic in the stubs only
    """Counts no further than `MOST_COUNTED`: a full count of a big archive reads all of it."""

    object_list: QuerySet[Any]

    @cached_property
    def counted(self) -> int:
        """The number, or one more than is counted."""
        return self.object_list[: MOST_COUNTED + 1].count()

    @property
    def count(self) -> int:
        return min(self.counted, MOST_COUNTED)

    @property
    def is_complete(self) -> bool:
        return self.counted <= MOST_COUNTED


class HasRows(Protocol):
    """The part of a list's admin that knows its table."""

    database: str
    ordering: Sequence[str]

    def narrowed(self, cl: IndexedChangeList, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]: ...
    def prepare(self, rows: list[Any]) -> None: ...


class IndexedChangeList(ChangeList):
    """A list that is ordered as an index is, and narrowed down to what indexes serve."""

    model_admin: Any
    notice: str  # above the list; empty if there is nothing to say

    def chosen(self, parameter: str) -> Any:
        """The filter of this name, if something is chosen there."""
        for each in self.filter_specs:
            if isinstance(each, admin.SimpleListFilter) and each.parameter_name == parameter and each.value():
                return each
        return None

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        allowed = {field.lstrip("-") for field in self.model_admin.ordering}
        # Without the primary key that Django would add: no index has it behind the rest.
        asked = [field for field in super().get_ordering(request, queryset) if str(field).lstrip("-") in allowed]
        return [str(field) for field in asked or self.model_admin.ordering]

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        self.notice = ""
        queryset = super().get_queryset(request, exclude_parameters)
        if self.query and as_uuid(self.query):
            # Whoever knows the id wants to see the job, whatever filter is left over from before.
            found, _ = self.model_admin.get_search_results(request, self.root_queryset, self.query)
            ordered: QuerySet[Any] = found.order_by(*self.get_ordering(request, found))
            return ordered
        narrowed: QuerySet[Any] = self.model_admin.narrowed(self, request, queryset)
        return narrowed

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        # Read now, while indexes are preferred; Django would read it when the page is written.
        self.result_list = list(self.result_list)
        self.model_admin.prepare(self.result_list)


class ListAdmin(ReadOnlyAdmin):
    """Lists of rows, and pages of one row, however big the table."""

    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they would count the whole table once for each
    list_per_page = 50
    list_max_show_all = 50

    class Media:
        css = {"all": ("django_proletarian/admin.css",)}  # noqa: RUF012 # as Django writes it

    @property
    def database(self) -> str:
        """The alias that the rows are read from."""
        return str(router.db_for_read(self.model))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return IndexedChangeList

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        with reading_by_index(self.database):
            return super().get_changelist_instance(request)

    def narrowed(self, cl: IndexedChangeList, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of `queryset` in so far as they can be found quickly; what is left out, `cl.notice` tells."""
        return queryset

    def prepare(self, rows: list[Any]) -> None:
        """Give the rows of a page what is to be shown of them and is not in them."""


def may_read(database: str, model: type[Model]) -> bool:
    """Whether the model's table is there and this role may read it; a Clojure-made schema has none of ours."""
    with connections[database].cursor() as cursor:
        cursor.execute("SELECT has_table_privilege(to_regclass(%s), 'SELECT')", [model._meta.db_table])
        return bool(cursor.fetchone()[0])


class IsAnyOf(Func):
    """Whether the first expression is in the second, an array: one parameter, which costs a third of IN's thousands."""

    template = "%(expressions)s)"
    arg_joiner = " = ANY("
    output_field = BooleanField()


def as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None
