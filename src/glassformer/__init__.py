"""glassformer: build, train, run and inspect transformers.

    import glassformer as gf

    model = gf.load("runs/book")  # or gf.fit("book.txt", minutes=5), or gf.import_model("path/to/gpt2")
    print(model.generate("It was"))

Public names are imported on first use, because most of them import torch.
"""

from glassformer.base.version import __version__

TYPE_CHECKING = False  # replaces typing.TYPE_CHECKING: importing `typing` takes longer than the rest of this file
if TYPE_CHECKING:
    from glassformer.api import TextTokens, Transformer, fit, import_model, load
    from glassformer.base.errors import GlassError

__all__ = ["GlassError", "TextTokens", "Transformer", "__version__", "fit", "import_model", "load"]

_MODULES = {"GlassError": "glassformer.base.errors"} | dict.fromkeys(
    ("TextTokens", "Transformer", "fit", "import_model", "load"), "glassformer.api"
)


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from importlib import import_module
        from importlib.util import find_spec

        if name in _MODULES:
            return getattr(import_module(_MODULES[name]), name)
        problem = f"module 'glassformer' has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(problem)
        if find_spec(f"glassformer.{name}") is not None:
            raise AttributeError(f"{problem}: {name} is a submodule. Write: import glassformer.{name}")
        from glassformer.api import Transformer
        from glassformer.base.errors import nearest

        if hasattr(Transformer, name):
            raise AttributeError(f"{problem}: it is an attribute of a model. Write: glassformer.load(RUN).{name}")
        raise AttributeError(f"{problem}. {nearest(name, _MODULES)}")
