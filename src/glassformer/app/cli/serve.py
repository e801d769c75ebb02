"""Show runs on a web page in the browser, and serve them through an OpenAI-compatible API.

  glass serve runs/book
  glass serve runs/book runs/en-de --port 8601 --no-open
  glass serve runs/book --host 0.0.0.0 --token A-LONG-SECRET-TOKEN

The command prints an address that contains a token; everybody with this token can use the server. The token is new at
each start, unless --token sets it. Programs send it as Authorization: Bearer TOKEN. Only this machine can reach the
server, unless --host names another address, such as 0.0.0.0 for the whole network. Ctrl-C stops the server. --json
prints one line, {"url": …, "token": …, "runs": […], "backend": …}, when the server is ready.

--backend onnxruntime generates the text of the API and of the page faster, on the CPU; onnxruntime-int8 is faster
still, with 8-bit weights, but not exact. All other computations use PyTorch.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
import sys
from pathlib import Path

from glassformer.app.cli.backend_option import add_backend
from glassformer.base.backends import BACKENDS
from glassformer.base.errors import GlassError
from glassformer.base.packages import require_packages
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted

MIN_TOKEN_CHARACTERS = 16
"""Minimum number of characters of the token of a server that other machines can reach."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass serve`."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders; the runs may still be training")
    parser.add_argument("--port", type=int, default=None, metavar="N", help="port (default: 8600; 0: any free port)")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="address to listen on (default: this machine only)"
    )
    parser.add_argument(
        "--token", metavar="T", help="access token (default: a new one at each start; required if --host is not local)"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    add_backend(parser, BACKENDS[1:], "torch")
    parser.add_argument(
        "--page", type=Path, metavar="DIR", help="folder of another build of the page, for its developers"
    )


def run(arguments: argparse.Namespace) -> int:
    """Start the server, print its address and serve requests until it is stopped."""
    from glassformer.app.server.access import LOCAL, Access, new_token
    from glassformer.app.server.app import make_app
    from glassformer.app.server.bundle import PAGE
    from glassformer.app.server.registry import ModelRegistry
    from glassformer.app.server.server import PORT, address_of, listen, open_browser, serve

    local = _is_local(arguments.host)
    _check(arguments, local)
    registry = ModelRegistry(arguments.runs, arguments.device, arguments.backend)
    listening_socket = listen(arguments.host, PORT if arguments.port is None else arguments.port)
    port = listening_socket.getsockname()[1]
    address = address_of(arguments.host, port)
    hosts = LOCAL | {address.removeprefix("http://").rpartition(":")[0]} if local else None
    access = Access(arguments.token or new_token(), port, hosts)
    url = f"{address}/?token={access.token}"

    def ready() -> None:
        names = registry.names()
        facts = {"url": url, "token": access.token, "runs": names, "backend": arguments.backend}
        lines = [f"{', '.join(names)}: {url}"]
        if arguments.backend != "torch":
            lines.append(f"--- {arguments.backend} generates the text")
        emit(SimpleReport(facts, [*lines, "Press Ctrl-C to stop the server."]), arguments.json)
        if not local:
            print(_open_to_others(arguments.host), file=sys.stderr)
        if not arguments.no_open:
            open_browser(url)

    serve(make_app(registry, access, arguments.page or PAGE), listening_socket, ready)
    return 0


def _check(arguments: argparse.Namespace, local: bool) -> None:
    """Check the backend, the port and the token.

    Raises:
        GlassError: the backend is not installed, the port or a character of the token is not allowed, or the token is
            too short for a server that other machines can reach.
    """
    if arguments.backend != "torch":  # before the first request, which would come when nobody reads the terminal
        require_packages("generation with onnxruntime", "onnx", "onnxruntime", extra="backends")
    if arguments.port is not None and not 0 <= arguments.port < 65536:
        raise GlassError(
            f"--port {arguments.port} is not a port", "Give a port from 1 to 65535, or 0 for any free port."
        )
    token = arguments.token
    if token == "":
        raise GlassError("--token is empty", "Give a token of letters, digits and . _ ~ -.")
    if token is not None and not re.fullmatch(r"[A-Za-z0-9._~-]+", token):
        raise GlassError(
            "--token has characters that are not allowed in an address", "Use only letters, digits and . _ ~ -."
        )
    if not local and (token is None or len(token) < MIN_TOKEN_CHARACTERS):
        given = "no --token was given" if token is None else f"--token has only {counted(len(token), 'characters')}"
        raise GlassError(
            f"--host {arguments.host} opens the server to everybody who can reach this machine, but {given}",
            f"Give a secret token of at least {MIN_TOKEN_CHARACTERS} characters: --token T.",
        )


def _is_local(host: str) -> bool:
    """Return whether the address is a loopback address or `localhost`, which only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _open_to_others(host: str) -> str:
    """Return the warning for a `--host` that other machines can reach."""
    return (
        f"--host {host}: everybody who can reach this machine and has the token can read these runs and use their "
        "models. The connection is not encrypted: put an HTTPS proxy in front of the server if you do not trust the "
        "network."
    )
