"""How long encode() and decode() take beside json.dumps() and json.loads(); run as a script, prints a table.

    python tests/benchmarks/transit.py

Each figure is the processor time of the best of many short rounds, since anything else that runs on the machine only
ever adds to it.
"""

from __future__ import annotations

import json
import platform
import sys
import time
import timeit
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[2]))

from django_proletarian.transit import decode, encode

SMALL = {"email": "a@b.c", "id": 42}
ORDER = {
    "order_id": 1234,
    "customer": {"name": "Åse Ødegård", "email": "a@b.c", "vip": True},
    "items": [{"sku": f"A{n}", "quantity": n, "price": 9.5} for n in range(10)],
    "note": None,
}


def rows(count: int) -> list[dict[str, object]]:
    return [{"id": n, "name": f"name {n}", "email": f"user{n}@example.com", "active": n % 2 == 0} for n in range(count)]


def best(function: Callable[[], object], seconds: float = 0.6) -> float:
    """Microseconds of processor time for one call of `function`."""
    timer = timeit.Timer(function, timer=time.process_time)
    number = max(1, int(0.002 / max(timer.timeit(3) / 3, 1e-7)))
    rounds = max(5, int(seconds / 0.002)) if number > 1 else 5
    return min(timer.repeat(rounds, number)) / number * 1e6


def main() -> None:
    print(f"Python {platform.python_version()}, microseconds\n")
    print(f"{'payload':32}{'bytes':>10}{'encode':>12}{'json.dumps':>12}{'decode':>12}{'json.loads':>12}")
    payloads: list[tuple[str, object]] = [
        ("{email, id}", SMALL),
        ("an order of ten items", ORDER),
        *((f"{count} rows", rows(count)) for count in (1_000, 12_500, 25_000, 50_000)),
        ("one string of 1 MB", "x" * 1_000_000),
    ]
    for name, payload in payloads:
        text, plain = encode(payload), json.dumps(payload)
        times = [
            best(lambda payload=payload: encode(payload)),  # type: ignore[misc]
            best(lambda payload=payload: json.dumps(payload)),  # type: ignore[misc]
            best(lambda text=text: decode(text)),  # type: ignore[misc]
            best(lambda plain=plain: json.loads(plain)),  # type: ignore[misc]
        ]
        print(f"{name:32}{len(text.encode()):>10,}" + "".join(f"{microseconds:>12,.1f}" for microseconds in times))
    rich = {"id": UUID(int=1), "at": datetime(2024, 7, 1, tzinfo=UTC), "tags": {"a", "b"}, "raw": b"abc"}
    text = encode(rich)
    print(f"{'uuid, datetime, set, bytes':32}{len(text):>10,}", end="")
    print(f"{best(lambda: encode(rich)):>12,.1f}{'-':>12}{best(lambda: decode(text)):>12,.1f}{'-':>12}")


if __name__ == "__main__":
    main()
