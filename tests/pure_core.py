"""`python -m tests.pure_core`: which of its lines and branches no test has reached; those of all are to be reached.

The modules are those that pyproject.toml's contract of imports calls the pure core. After `coverage combine`.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path


def patterns() -> list[str]:
    """A pattern of file names for each module, or for all modules of a package."""
    root = Path(__file__).parents[1]
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [modules] = [contract["source_modules"] for contract in contracts if contract["type"] == "forbidden"]
    paths = [module.replace(".", "/") for module in modules]
    return [f"{path}/*.py" if (root / path).is_dir() else f"{path}.py" for path in paths]


if __name__ == "__main__":
    report = [sys.executable, "-m", "coverage", "report", "--fail-under", "100", "--include", ",".join(patterns())]
    sys.exit(subprocess.call(report))
