"""What is told at the end: machine and versions, then each figure's medians; as text and as JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django
import psycopg

import django_proletarian
from tests.benchmarks.figures import Figure
from tests.benchmarks.server import SETTINGS, Server

# A value's name, its median, minimum and maximum, its goal and whether that is reached.
COLUMNS = "    {:40}{:>12}{:>12}{:>12}  {:>10}  {}"


@dataclass(slots=True)
class Result:
    """What was measured of one figure: its values, a dict for each round; why it was skipped, or could not go on."""

    figure: Figure
    rounds: list[dict[str, float]] = field(default_factory=list)
    skipped: str | None = None
    error: str | None = None

    @property
    def values(self) -> dict[str, list[float]]:
        return {name: [values[name] for values in self.rounds] for name in (self.rounds[0] if self.rounds else {})}

    @property
    def medians(self) -> dict[str, float]:
        return {name: statistics.median(values) for name, values in self.values.items()}


def head(server: Server, *, rounds: int, quick: bool) -> dict[str, Any]:
    """Where and with what it was measured."""
    [(version, synchronous_commit)] = server.sql(
        "SELECT current_setting('server_version'), current_setting('synchronous_commit')"
    )
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{_processor()}, {platform.system()} {platform.release()}",
        "cpus": os.cpu_count(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "django": django.get_version(),
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        "postgresql": version,
        "django_proletarian": django_proletarian.__version__,
        "server_settings": {**SETTINGS, "synchronous_commit": synchronous_commit},
        "rounds": rounds,
        "quick": quick,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def as_text(head: dict[str, Any], results: Sequence[Result]) -> str:
    """A table: for each value the median, minimum and maximum of all rounds."""
    settings = ", ".join(f"{name} {value}" for name, value in head["server_settings"].items())
    lines = [
        f"{head['machine']}, {head['cpus']} CPUs, load {head['load_at_start']} at the start, {head['date']}",
        f"{head['python']}, Django {head['django']}, psycopg {head['psycopg']}, PostgreSQL {head['postgresql']}, "
        f"django-proletarian {head['django_proletarian']}",
        settings,
        f"Rounds: {head['rounds']}{', quick: fewer jobs than the titles say' if head['quick'] else ''}. "
        "A ratio is the median of the rounds' ratios.",
        "",
        COLUMNS.format("", "median", "min", "max", "goal", "reached").rstrip(),
    ]
    for result in results:
        figure = result.figure
        # Fewer rounds than asked for, where the run was interrupted.
        rounds = f", rounds: {len(result.rounds)}" if 0 < len(result.rounds) < head["rounds"] else ""
        lines.append(f"{figure.title}{f' [{figure.unit}]' if figure.unit else ''}{rounds}")
        if result.skipped is not None:
            lines.append(f"    skipped: {result.skipped}")
        if result.error is not None:
            lines.append(f"    error: {result.error}")
        medians = result.medians
        for name, values in result.values.items():
            goals = [goal for goal in figure.goals if goal.value == name]
            reached = [{True: "yes", False: "no", None: "-"}[goal.reached(medians)] for goal in goals]
            shown = [_number(value) for value in (medians[name], min(values), max(values))]
            goal = ", ".join(map(str, goals))
            lines.append(COLUMNS.format(name.replace("_", " "), *shown, goal, ", ".join(reached)).rstrip())
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def as_json(head: dict[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        **head,
        "figures": [
            {
                "name": result.figure.name,
                "title": result.figure.title,
                "unit": result.figure.unit,
                "skipped": result.skipped,
                "error": result.error,
                "values": {
                    name: {"median": result.medians[name], "min": min(values), "max": max(values), "rounds": values}
                    for name, values in result.values.items()
                },
                "goals": [
                    {
                        "value": goal.value,
                        "at_least": goal.at_least,
                        "at_most": goal.at_most,
                        "reached": goal.reached(result.medians),
                    }
                    for goal in result.figure.goals
                ],
            }
            for result in results
        ],
    }
