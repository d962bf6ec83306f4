"""A handler that runs until the test lets it end."""

from __future__ import annotations

import threading


class Blocking:
    """The body of a handler: says that it has started, and waits until the test lets it go on."""

    def __init__(self) -> None:
        self.started, self.go = threading.Event(), threading.Event()

    def __call__(self, payload: object) -> None:
        self.started.set()
        assert self.go.wait(30)
