"""Show runs on a page in the browser, and answer programs that speak the API of OpenAI.

  glass serve runs/book
  glass serve runs/book runs/en-de --port 8601 --no-open
  glass serve runs/book --host 0.0.0.0 --token A-LONG-SECRET

It prints an address with a token in it, which lets in whoever has it; it is another one at each start unless --token
says it. Programs send it as Authorization: Bearer TOKEN. Nobody else on the network can reach the server, unless
--host 0.0.0.0 opens it. Ctrl-C ends it. --json prints one line, {"url": …, "token": …, "runs": […],
"backend": …}, when it is ready.

--backend onnxruntime computes the texts of the API and of the page faster, on the processor; onnxruntime-int8 with
weights of 8 bits, which is faster still and not exact. Looking inside stays with PyTorch.
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
from glassformer.base.report import SimpleReport, emit

LONG_ENOUGH = 16
"""Characters of a token that keeps others on the network out."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass serve`."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders; those still training, too")
    parser.add_argument("--port", type=int, default=None, metavar="N", help="default: 8600; 0: any that is free")
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="who may reach it (default: this machine)")
    parser.add_argument("--token", metavar="T", help="instead of a new one at each start")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    add_backend(parser, BACKENDS[1:], "torch")
    parser.add_argument("--page", type=Path, metavar="DIR", help="another built page, for those who work on it")


def run(arguments: argparse.Namespace) -> int:
    """Listen, say where, and answer until it is ended."""
    from glassformer.app.server.access import LOCAL, Access, new_token
    from glassformer.app.server.app import make_app
    from glassformer.app.server.bundle import PAGE
    from glassformer.app.server.registry import ModelRegistry
    from glassformer.app.server.server import PORT, address_of, listen, open_browser, serve

    local = _is_local(arguments.host)
    _check(arguments, local)
    registry = ModelRegistry(arguments.runs, arguments.device, arguments.backend)
    listening = listen(arguments.host, PORT if arguments.port is None else arguments.port)
    port = listening.getsockname()[1]
    address = address_of(arguments.host, port)
    hosts = LOCAL | {address.removeprefix("http://").rpartition(":")[0]} if local else None
    access = Access(arguments.token or new_token(), port, hosts)
    url = f"{address}/?token={access.token}"

    def ready() -> None:
        names = registry.names()
        facts = {"url": url, "token": access.token, "runs": names, "backend": arguments.backend}
        lines = [f"{', '.join(names)}: {url}"]
        if arguments.backend != "torch":
            lines.append(f"--- {arguments.backend} computes the texts")
        emit(SimpleReport(facts, [*lines, "Ctrl-C ends it."]), arguments.json)
        if not local:
            print(_open_to_others(arguments.host), file=sys.stderr)
        if not arguments.no_open:
            open_browser(url)

    serve(make_app(registry, access, arguments.page or PAGE), listening, ready)
    return 0


def _check(arguments: argparse.Namespace, local: bool) -> None:
    """Refuse a port that there is not, and a token that does not keep others out."""
    if arguments.port is not None and not 0 <= arguments.port < 65536:
        raise GlassError(f"--port {arguments.port} is no port", "Ports go from 1 to 65535; 0 takes any that is free.")
    token = arguments.token
    if token is not None and not re.fullmatch(r"[A-Za-z0-9._~-]+", token):
        raise GlassError(
            "--token has characters that cannot stand in an address", "Use letters, digits and the signs . _ ~ - only."
        )
    if not local and (token is None or len(token) < LONG_ENOUGH):
        problem = f"--host {arguments.host} opens the server to everybody who can reach this machine"
        raise GlassError(problem, f"Say a secret of at least {LONG_ENOUGH} characters that lets people in: --token T.")


def _is_local(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _open_to_others(host: str) -> str:
    """Return the warning for a `--host` that other machines can reach."""
    return (
        f"--host {host}: everybody who can reach this machine and has the token can read these runs and use their "
        "models. What is sent is not encrypted: put a server with HTTPS before it if the network is not yours."
    )
