"""Optional packages: asked for before anything else is done."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from glassformer.base.errors import GlassError


def installed(name: str) -> bool:
    """Return whether a package is installed; it is not imported."""
    return importlib.util.find_spec(name) is not None


def require_packages(purpose: str, *names: str, extra: str = "export") -> None:
    """Raise a `GlassError` that names all that are not installed.

    Args:
        purpose: what needs them, in words.
        names: of the packages.
        extra: of this project, which installs them.
    """
    missing = [name for name in names if not installed(name)]
    if missing:
        packages = f"the package{'s' * (len(missing) > 1)} {', '.join(missing)}"
        raise GlassError(f"{purpose} needs {packages}", f'pip install -c constraints.txt -e ".[{extra}]"')


def version_of(name: str) -> str:
    """A package that is installed, with its version: `onnxruntime 1.31.1`."""
    return f"{name} {importlib.metadata.version(name)}"
