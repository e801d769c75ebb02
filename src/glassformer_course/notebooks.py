"""Notebooks of exercises: the explanation with its picture, the task, the cell to fill in, and the check."""

from __future__ import annotations

import base64

from glassformer.base.errors import GlassError
from glassformer_course.exercise import Exercise
from glassformer_course.reading import ANSWER


def notebook(exercise: Exercise, level: str) -> str:
    """Return the notebook of an exercise as JSON text, made from the same source as the `.py` file.

    Args:
        exercise: the exercise.
        level: level of the explanation.

    Raises:
        GlassError: jupytext is not installed.
    """
    try:
        import jupytext
        import nbformat
    except ImportError:
        raise GlassError("notebooks need jupytext", 'pip install -c constraints.txt -e ".[notebooks]"') from None
    book = jupytext.reads(exercise.stub, fmt="py:percent")
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.metadata["tags"] = [ANSWER]
    picture = exercise.picture()
    drawn = base64.b64encode(picture.svg().encode("utf-8")).decode("ascii")
    image = f"![{picture.caption}](data:image/svg+xml;base64,{drawn})"
    page = "\n\n".join([exercise.summary, exercise.page(level), image, f"*{picture.caption}*"])
    names = ", ".join([f'"{exercise.name}"', *exercise.functions])
    check = f"from glassformer_course import check, hint\n\ncheck({names})"
    new = nbformat.v4
    book.cells.insert(1, new.new_markdown_cell(page))
    book.cells += [
        new.new_markdown_cell("Run the next cell to check your answer, as often as you like; `hint` gives a hint."),
        new.new_code_cell(check),
        new.new_code_cell(f'# hint("{exercise.name}", 1)'),
    ]
    for index, cell in enumerate(book.cells):
        cell["id"] = f"{exercise.name}-{index}".replace("_", "-")  # nbformat's random ids would change every time
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    text: str = nbformat.writes(book, version=4)
    return text
