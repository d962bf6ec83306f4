"""A network between a worker and its server that can be cut: nothing comes through, and nobody is told.

What was sent meanwhile arrives when it is mended, as TCP would send it again.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self


class Cuttable:
    """Hands on what comes to `port` of 127.0.0.1, to the server at the given port, and back."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._whole = threading.Event()
        self._whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []  # of both sides
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mend()
        for each in (self._listener, *self._sockets):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._hand_on, args=(source, sink), daemon=True).start()

    def _hand_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._whole.wait()
                sink.sendall(data)
        except OSError:
            pass  # one of them was closed
        finally:
            for each in (source, sink):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
