"""Check whether optional packages are installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from glassformer.base.errors import GlassError


def installed(name: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return importlib.util.find_spec(name) is not None


def install_command(extra: str = "") -> str:
    """Return the command that installs this package with an optional extra, in the way in which it is installed.

    In a checkout, the command uses the pinned versions of `constraints.txt`; an installed wheel has no such file.
    """
    checkout = Path(__file__).parents[3]
    suffix = f"[{extra}]" if extra else ""
    if (checkout / "constraints.txt").is_file():
        return f'pip install -c "{checkout / "constraints.txt"}" -e "{checkout}{suffix}"'
    return f'pip install "glassformer{suffix}"'


def require_packages(purpose: str, *names: str, extra: str = "export") -> None:
    """Raise a `GlassError` that names the packages that are not installed.

    Args:
        purpose: the feature that needs the packages, for the message.
        names: names of the packages.
        extra: the optional extra of this project that installs the packages.
    """
    missing = [name for name in names if not installed(name)]
    if missing:
        packages = f"the package{'s' * (len(missing) > 1)} {', '.join(missing)}"
        raise GlassError(f"{purpose} needs {packages}", install_command(extra))


def version_of(name: str) -> str:
    """Return the name and version of an installed package, such as `onnxruntime 1.31.1`."""
    return f"{name} {importlib.metadata.version(name)}"
