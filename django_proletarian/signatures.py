"""Whether a function can be called as it will be: asked when it is named, not when the first job runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def check_takes(function: Callable[..., Any], *arguments: str) -> None:
    """Raise ValueError, as the end of a sentence about `function`, if it can't be called with so many arguments.

    `arguments` are what they are, for the message. A function that does not tell its signature, as some written in C,
    passes.
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        called = f"with {' and '.join(arguments)}" if arguments else "without arguments"
        raise ValueError(f"takes {signature}, and is called {called}") from None
