"""Generate pages from the package itself into docs/made when the book is built, so that they are never out of date."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from extensions import bugs, commands, examples, exercises, glossary, library, settings


def write_pages(app: Sphinx) -> None:
    """Write the generated pages that changed, and delete files in docs/made that are no longer generated."""
    docs = Path(app.srcdir)
    folder = Path(app.srcdir) / "made"
    shown = examples.run_all(Path(app.outdir).parent / "examples.json")
    pages = {
        **commands.pages(docs, shown),
        **settings.pages(),
        **glossary.pages(),
        **exercises.pages(),
        **bugs.pages(),
        **library.pages(),
    }
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*.*"):
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """Generate the pages before Sphinx collects the list of pages."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
