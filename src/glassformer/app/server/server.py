"""Listening: a socket of our own, uvicorn behind it, the browser in front, and an end that is clean."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from glassformer.base.errors import GlassError

PORT = 8600
"""Where it listens if nothing else is said."""
CONNECTIONS = 512
"""That are open at once; more are answered with 503."""
SWITCH_SECONDS = 1e-4
"""How long one thread may keep the interpreter while another waits for it. The thread that runs the model lets go of it
in every long operation, and with Python's own 5 ms it would wait after each of them while answers are sent."""
PATIENCE = 3
"""Seconds in which answers that are on their way may be ended when the server stops."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Args:
        host: an address or a name of this machine.
        port: 0: any that is free.

    Raises:
        GlassError: the port is taken, or the host is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise GlassError(f"--host {host} is no address of this machine", "Leave it out, or give 0.0.0.0.") from None
    found = socket.socket(family, kind, protocol)
    try:
        if os.name != "nt":  # there it would let two servers have one port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        remedy = "Choose another one, such as --port 0, which takes any that is free."
        raise GlassError(f"cannot listen at {host}, port {port}: {error.strerror}", remedy) from None
    return found


def address_of(host: str, port: int) -> str:
    """Where a browser on this machine finds the server."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


class Server(uvicorn.Server):
    """uvicorn, which says when it is ready.

    Args:
        app: what is served.
        ready: called when requests are answered.
    """

    def __init__(self, app: ASGIApp, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",  # whatever else is installed: it bounds what a request's headers may take
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=PATIENCE,
                h11_max_incomplete_event_size=64 * 1024,
            )
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's own."""
        await super().startup(sockets)
        self._ready()


def serve(app: ASGIApp, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until Ctrl-C or SIGTERM.

    Args:
        app: what is served.
        listening: from `listen`; closed at the end.
        ready: called when requests are answered.
    """
    ended = signal.signal(signal.SIGTERM, lambda number, frame: None)  # uvicorn raises it again when it has ended
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        Server(app, ready).run(sockets=[listening])
    except KeyboardInterrupt:  # likewise
        pass
    finally:
        sys.setswitchinterval(interval)
        signal.signal(signal.SIGTERM, ended)
        listening.close()


def open_browser(address: str) -> None:
    """Show an address, where there is a screen; a browser that takes its time holds nobody up."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return  # a browser in the terminal would take it over
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
