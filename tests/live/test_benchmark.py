"""The benchmark still runs. What it measures is nobody's test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.processes import ROOT


@pytest.mark.server
def test_the_benchmark_measures_a_figure_and_writes_it_down(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    options = ["--quick", "--rounds", "1", "--only", "drain-1x1", "--json", str(written)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert done.returncode == 0, done.stderr
    assert "drain, 1 process × 1 thread" in done.stdout
    [figure] = json.loads(written.read_text())["figures"]
    assert figure["values"]["worker"]["median"] > 0
