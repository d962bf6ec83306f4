"""Measures the figures round by round, so that what the machine does meanwhile meets all of them alike."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Collection

from tests.benchmarks.figures import FIGURES, QUICK, Bench, Sizes, Skipped
from tests.benchmarks.pgbench import NoPgbench
from tests.benchmarks.report import Result
from tests.benchmarks.server import Server


def run(server: Server, only: Collection[str], *, rounds: int, quick: bool) -> list[Result]:
    """The figures called `only`; tells on stderr how far it is. Ctrl-C ends it with what has been measured so far."""
    results = [Result(figure) for figure in FIGURES if figure.name in only]
    try:
        for number in range(rounds):
            bench = Bench(server=server, sizes=QUICK if quick else Sizes(), round=number)
            for result in results:
                if result.skipped is None and result.error is None:
                    took = measure(result, bench)
                    print(f"round {number + 1} of {rounds}: {result.figure.name}, {took:.1f} s", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return results


def measure(result: Result, bench: Bench) -> float:
    """Add a round to the result, or why there is none; return how many seconds that took."""
    began = time.perf_counter()
    try:
        result.rounds.append(result.figure.measure(bench))
    except (Skipped, NoPgbench) as error:
        result.skipped = str(error)
    except Exception as error:  # the other figures have taken long to measure
        result.error = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    return time.perf_counter() - began
