"""The type variables of what is public and generic. A bare `Job` or `JobHandler` is as good as one with `object`s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers have this module built in. Its defaults come to Python itself only with 3.13.
    from typing_extensions import ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters", default=...)
    Result_co = TypeVar("Result_co", covariant=True, default=Any)
    Payload_co = TypeVar("Payload_co", covariant=True, default=object)
else:
    from typing import ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters")
    Result_co = TypeVar("Result_co", covariant=True)
    Payload_co = TypeVar("Payload_co", covariant=True)
