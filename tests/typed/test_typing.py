"""What type checkers find in code that uses this package: all that is wrong, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOWNSTREAM = Path(__file__).parent / "downstream.py"
REPOSITORY = Path(__file__).parents[2]

# As a project has it that has no plugin of django-stubs. Silent about us, who are no installed package here.
MYPY = """
[mypy]
strict = True
python_version = 3.11
follow_imports = silent
"""


def wrong_lines() -> set[int]:
    """The lines of the sample that are wrong, and say so."""
    lines = DOWNSTREAM.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


def run(*command: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=REPOSITORY, capture_output=True, text=True, timeout=110, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy comes with the extra dev")
def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(MYPY)
    _, output = run("mypy", "--config-file", str(tmp_path / "mypy.ini"), str(DOWNSTREAM))
    found = {int(line) for line in re.findall(r"^\S*downstream\.py:(\d+): error", output, re.MULTILINE)}
    assert found == wrong_lines(), output


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright comes with the extra dev")
def test_pyright_finds_what_is_wrong_and_nothing_else() -> None:
    exit_code, output = run("pyright", "--version")
    if exit_code:
        pytest.skip(f"pyright has no Node.js to run on, and can't download it: {output[-300:]}")
    _, output = run("pyright", "--outputjson", "--pythonpath", sys.executable, str(DOWNSTREAM))
    diagnostics, _ = json.JSONDecoder().raw_decode(output[output.index("{") :])
    errors = [each for each in diagnostics["generalDiagnostics"] if each["severity"] == "error"]
    found = {each["range"]["start"]["line"] + 1 for each in errors}
    assert found == wrong_lines(), output


def test_the_sample_says_that_some_of_it_is_wrong() -> None:
    assert len(wrong_lines()) > 20
