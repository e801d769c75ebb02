"""Check whether optional packages are installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from glassformer.base.errors import GlassError


def installed(name: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return importlib.util.find_spec(name) is not None


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
        raise GlassError(f"{purpose} needs {packages}", f'pip install -c constraints.txt -e ".[{extra}]"')


def version_of(name: str) -> str:
    """Return the name and version of an installed package, such as `onnxruntime 1.31.1`."""
    return f"{name} {importlib.metadata.version(name)}"
