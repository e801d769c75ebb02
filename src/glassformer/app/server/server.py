"""Run the server: open a socket, serve the application with uvicorn, open the browser, and stop cleanly."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from glassformer.app.server.connections import ACCEPTED, QUEUED, Connection
from glassformer.base.errors import GlassError

PORT = 8600
"""Default port."""
SWITCH_SECONDS = 1e-4
"""Thread switch interval of Python (`sys.setswitchinterval`). The thread that runs the model releases the GIL in every
long operation. With the default of 5 ms, it would wait up to 5 ms for the GIL after each such operation while responses
are sent."""
SHUTDOWN_SECONDS = 3
"""Seconds to finish open responses when the server stops."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Args:
        host: address or name of this machine.
        port: port; 0: any free port.

    Raises:
        GlassError: the port is in use or not allowed, or the host is not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise GlassError(
            f"--host {host} is not an address of this machine", "Remove --host, or give --host 0.0.0.0."
        ) from None
    server_socket = socket.socket(family, kind, protocol)
    try:
        if os.name != "nt":  # on Windows, SO_REUSEADDR would let two servers use one port
            server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server_socket.bind(address)
        server_socket.listen(QUEUED)
    except OSError as error:
        server_socket.close()
        remedy = (
            "Choose another port, or give --port 0 to use any free port; --host must be an address of this machine."
        )
        raise GlassError(f"cannot listen at {host}, port {port}: {error.strerror}", remedy) from None
    return server_socket


def address_of(host: str, port: int) -> str:
    """Return the URL of the server for a browser on this machine."""
    browser_host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{browser_host}:{port}"


class Server(uvicorn.Server):
    """uvicorn server that calls a function when it is ready.

    Args:
        app: ASGI application.
        ready: function to call when the server accepts requests.
    """

    def __init__(self, app: ASGIApp, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                log_config=None,
                log_level="error",  # no warning for each request that is not HTTP
                access_log=False,
                server_header=False,
                backlog=ACCEPTED,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                h11_max_incomplete_event_size=64 * 1024,
            )
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start uvicorn, then call `ready`."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUED)
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Enforce the limits of all connections every second; uvicorn calls this ten times a second."""
        if counter % 10 == 0:
            for connection in list(self.server_state.connections):
                cast(Connection, connection).enforce_limits()
        return await super().on_tick(counter)


def serve(app: ASGIApp, listening_socket: socket.socket, ready: Callable[[], None]) -> None:
    """Serve requests until Ctrl-C or SIGTERM.

    Args:
        app: ASGI application.
        listening_socket: socket from `listen`; closed at the end.
        ready: function to call when the server accepts requests.
    """
    previous = signal.signal(signal.SIGTERM, lambda number, frame: None)  # uvicorn raises it again after its shutdown
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        Server(app, ready).run(sockets=[listening_socket])
    except KeyboardInterrupt:  # uvicorn raises it again after its shutdown
        pass
    finally:
        sys.setswitchinterval(interval)
        signal.signal(signal.SIGTERM, previous)
        listening_socket.close()


def open_browser(address: str) -> None:
    """Open an address in the browser, in a thread because it may take long; on Linux only if there is a display."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return  # a text browser would take over the terminal
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
