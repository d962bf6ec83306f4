"""The files of the pure core, as pyproject.toml's contract of imports lists its modules; for `make coverage`.

Prints them as `coverage report --include` takes them.
"""

from __future__ import annotations

import tomllib
from pathlib import Path


def patterns() -> list[str]:
    """A pattern for each module, or for all modules of a package."""
    root = Path(__file__).parents[1]
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [modules] = [contract["source_modules"] for contract in contracts if contract["type"] == "forbidden"]
    paths = [module.replace(".", "/") for module in modules]
    return [f"{path}/*.py" if (root / path).is_dir() else f"{path}.py" for path in paths]


if __name__ == "__main__":
    print(",".join(patterns()))
