"""The model field that maps `":success"` in the row to `"success"` in Python, and back."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.lookups import IExact, IStartsWith, StartsWith

from django_proletarian import names


class NameField(models.TextField):  # type: ignore[type-arg] # generic in the stubs only
    """A queue, job type or status: stored as the original stores it, a `str` without the colon in Python."""

    def from_db_value(self, value: str | None, expression: object, connection: BaseDatabaseWrapper) -> str | None:
        return None if value is None else names.from_stored(value)

    def get_prep_value(self, value: Any) -> str | None:
        prepared = super().get_prep_value(value)
        return None if prepared is None else names.to_stored(prepared)

    def value_to_string(self, obj: models.Model) -> str:
        # For dumpdata, whose text must keep what a PlainName says by its type alone.
        return names.shown(self.value_from_object(obj))

    def to_python(self, value: Any) -> Any:
        return names.parse(value) if type(value) is str else super().to_python(value)


class _FromTheStart:
    """Puts the colon before the text of a lookup that begins where the stored text begins; others look inside it."""

    rhs: Any

    def get_prep_lookup(self) -> Any:
        return names.to_stored(self.rhs) if isinstance(self.rhs, str) else self.rhs


@NameField.register_lookup
class NameStartsWith(_FromTheStart, StartsWith):
    """`startswith` for names."""


@NameField.register_lookup
class NameIStartsWith(_FromTheStart, IStartsWith):
    """`istartswith` for names."""


@NameField.register_lookup
class NameIExact(_FromTheStart, IExact):
    """`iexact` for names."""
