"""Payloads to text and back: the protocol, and the two serializers in the box.

`enqueue` encodes, the worker and the models decode.
"""

from __future__ import annotations

import json
import pkgutil
from typing import Protocol, runtime_checkable

from django_proletarian import transit
from django_proletarian.errors import PayloadDecodeError, PayloadEncodeError


@runtime_checkable
class Serializer(Protocol):
    """Anything with these two methods. They are called from many threads at once."""

    def encode(self, value: object) -> str:
        """The text to store. Raises PayloadEncodeError for a value it can't write."""
        ...

    def decode(self, text: str) -> object:
        """The value again. Raises PayloadDecodeError for text it can't read."""
        ...


class TransitSerializer:
    """Transit JSON, as the original writes it: what Clojure and Django share.

    `keyword_keys` writes the str keys of dicts as keywords, so that Clojure's `{:keys [email]}` finds them; False
    writes them as strings.
    """

    is_json = True  # spaces may stand behind the text

    def __init__(self, *, keyword_keys: bool = True) -> None:
        self.keyword_keys = keyword_keys

    def encode(self, value: object) -> str:
        return transit.encode(value, keyword_keys=self.keyword_keys)

    def decode(self, text: str) -> object:
        return transit.decode(text)


class JSONSerializer:
    """Plain JSON, for queues that no Clojure program shares.

    `encoder` is a `json.JSONEncoder` class or a "module:Class" path to one. Dates, UUIDs and Decimals are written by
    Django's encoder and come back as strings.
    """

    is_json = True

    def __init__(
        self, *, encoder: type[json.JSONEncoder] | str = "django.core.serializers.json:DjangoJSONEncoder"
    ) -> None:
        # A path, so that this module can be imported and used without Django.
        self._encoder: type[json.JSONEncoder] = pkgutil.resolve_name(encoder) if isinstance(encoder, str) else encoder

    def encode(self, value: object) -> str:
        try:
            return json.dumps(value, cls=self._encoder, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise PayloadEncodeError(f"payload: JSON can't hold it: {error}") from error

    def decode(self, text: str) -> object:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise PayloadDecodeError(f"payload is not JSON: {error.msg} at character {error.pos}") from error
        except (ValueError, RecursionError) as error:
            raise PayloadDecodeError(f"payload can't be read as JSON: {type(error).__name__}") from error
