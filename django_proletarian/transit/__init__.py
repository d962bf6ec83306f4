"""Transit-JSON, the form in which Proletarian stores payloads: encode() and decode().

Called by serializers.py. Text and tree are text.py's, tree and values reader.py's and
writer.py's, who share scalars.py and cache.py. Nesting is never followed by recursion: a
payload may be deep, and its reader near the end of the stack already.

Source: the public Transit format 0.8, github.com/cognitect/transit-format. tests/clojure/payloads.jsonl holds what
Clojure's transit-clj writes.
"""

from __future__ import annotations

import json

from django_proletarian.errors import PayloadDecodeError, PayloadEncodeError
from django_proletarian.transit.reader import value_of
from django_proletarian.transit.text import parse, write
from django_proletarian.transit.values import URI, Char, FrozenMap, Keyword, Refused, Symbol, TaggedValue
from django_proletarian.transit.writer import tree_of

__all__ = ["URI", "Char", "FrozenMap", "Keyword", "Symbol", "TaggedValue", "decode", "encode"]


def encode(value: object, *, keyword_keys: bool = True) -> str:
    """Return `value` as Transit-JSON in the compact form.

    `keyword_keys` writes the str keys of dicts as keywords, whatever their text, so that Clojure's `{:keys [email]}`
    finds them; only the empty string stays a string. So a map that came from Clojure with string keys goes back
    with keywords, unless `keyword_keys` is False. Keyword keys are keywords either way.

    Datetimes keep milliseconds, what is smaller is cut off. Tuples are written as lists, Enum members as their values,
    lazy strings as text, and subclasses (a named tuple, an OrderedDict, a SafeString) as what they are based on.

    Raises PayloadEncodeError, with the place in the payload and what to pass instead, if there is something that
    Transit, Clojure or decode() could not hold.
    """
    tree, depth, may_collide = tree_of(value, keyword_keys)
    text = write(tree, depth)
    if may_collide:
        try:
            decode(text)
        except PayloadDecodeError as error:
            raise PayloadEncodeError(f"The payload would be written so that it can't be read again. {error}") from None
    return text


def decode(text: str) -> object:
    """Return the value that the Transit-JSON `text` holds, in the compact or the verbose form.

    Maps are dicts, vectors and lists are lists, sets are sets; where Python wants something hashable (in map keys and
    set members) they are FrozenMap, tuple and frozenset. Keys that differ in Clojure but not in Python (1 and 1.0,
    :a and "a"), and dates outside of Python's years, are refused rather than lost.

    Whatever `text` is, nothing but PayloadDecodeError is raised. Its message has the place, and of the payload no more
    than a tag or a cache code.
    """
    try:
        tree = parse(text)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} at character {error.pos}"
    except Refused as refused:
        problem = str(refused)
    else:
        return value_of(tree)
    # Out here, because as its context the JSONDecodeError would carry the whole text along.
    raise PayloadDecodeError(f"The payload is not Transit-JSON: {problem}.")
