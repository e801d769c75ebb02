"""Optional packages: asked for before anything else is done."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from glassformer.base.errors import GlassError


def require_packages(purpose: str, *names: str) -> None:
    """Raise a `GlassError` that names all that are not installed.

    Args:
        purpose: what needs them, in words.
        names: of the packages.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        packages = f"the package{'s' * (len(missing) > 1)} {', '.join(missing)}"
        raise GlassError(f"{purpose} needs {packages}", 'pip install -c constraints.txt -e ".[export]"')


def version_of(name: str) -> str:
    """A package that is installed, with its version: `onnxruntime 1.31.1`."""
    return f"{name} {importlib.metadata.version(name)}"
