"""The Python types that stand for Transit types which Python itself lacks.

Made by transit.decode, written back by transit.encode, and free for anyone to build a payload with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class _Text(str):
    """Text that equals and hashes as a plain str, but remembers which Transit type it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str.__repr__(self)})"


class Keyword(_Text):
    """A Clojure keyword without its colon, as in `Keyword("user/email")`; before the first slash is its namespace."""

    __slots__ = ()


class Symbol(_Text):
    """A Clojure symbol."""

    __slots__ = ()


class Char(_Text):
    """A Java char: one character, of those that take a single UTF-16 unit."""

    __slots__ = ()


class URI(_Text):
    """A URI, kept as the text it was written as."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TaggedValue:
    """A value under a tag that this package knows nothing of; written back as it was read.

    A tag of one character with a str is Transit's string form, `"~Xabc"`; all else is `["~#tag", value]`.
    """

    tag: str
    value: object
    _hash: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            hashed = hash((self.tag, self.value))
        except TypeError:  # the value is a list, for one
            hashed = None
        # Taken now, as values are made from the inside out: later it would have to go down all levels at once.
        object.__setattr__(self, "_hash", hashed)

    def __hash__(self) -> int:
        return hash((self.tag, self.value)) if self._hash is None else self._hash

    def __reduce__(self) -> tuple[type[TaggedValue], tuple[str, object]]:
        return TaggedValue, (self.tag, self.value)  # a hash of text is another in another process


class FrozenMap(Mapping[object, object]):
    """A map that is itself a map key or a set member, where a dict can't be; equals a dict of the same content."""

    __slots__ = ("_content", "_hash")

    def __init__(self, content: Mapping[Any, object]) -> None:
        """Raises TypeError if a value can't be hashed."""
        self._content = dict(content)
        self._hash = hash(frozenset(self._content.items()))  # now, for the reason given in TaggedValue

    def __getitem__(self, key: object) -> object:
        return self._content[key]

    def __iter__(self) -> Iterator[object]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"FrozenMap({self._content!r})"

    def __reduce__(self) -> tuple[type[FrozenMap], tuple[dict[Any, object]]]:
        return FrozenMap, (self._content,)


class Refused(ValueError):
    """What is wrong with a value, without its place in the payload; encode() and decode() add the place."""
