"""A task's payload: how it is called, and what else its result tells that the row does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_proletarian.tasks.values import normalised

# To Clojure these are keywords of one namespace: {:django.tasks/keys [args kwargs]}.
ARGS, KWARGS, BACKEND, RUN_AFTER = (f"django.tasks/{name}" for name in ("args", "kwargs", "backend", "run_after"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What is in the payload of a task's job."""

    args: list[Any]
    kwargs: dict[str, Any]
    backend: str  # alias
    run_after: datetime | None = None

    def as_payload(self) -> dict[str, object]:
        """The payload, of which the serializer makes a text."""
        payload: dict[str, object] = {ARGS: self.args, KWARGS: self.kwargs, BACKEND: self.backend}
        if self.run_after is not None:
            # As text, since Transit's dates end with the millisecond.
            payload[RUN_AFTER] = self.run_after.isoformat()
        return payload


def is_envelope(payload: object) -> bool:
    """Whether this is the payload of a task."""
    return isinstance(payload, Mapping) and ARGS in payload and KWARGS in payload


def backend_in(payload: object) -> str:
    """The alias of the backend that the task was enqueued with; empty if the payload names none."""
    backend = payload.get(BACKEND) if isinstance(payload, Mapping) else None
    return str(backend) if isinstance(backend, str) else ""


def read(payload: object) -> Envelope:
    """The envelope in a decoded payload. Raises ValueError or TypeError for one that nobody could have written here."""
    if not isinstance(payload, Mapping):
        raise TypeError(f"A task's payload is a {type(payload).__name__}, not a map.")
    args, kwargs = normalised(payload.get(ARGS), "args"), normalised(payload.get(KWARGS), "kwargs")
    run_after = payload.get(RUN_AFTER)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError("A task's payload has args that are no list, or kwargs that are no map.")
    return Envelope(
        args=args,
        kwargs=kwargs,
        backend=backend_in(payload),
        run_after=datetime.fromisoformat(run_after) if isinstance(run_after, str) else None,
    )
