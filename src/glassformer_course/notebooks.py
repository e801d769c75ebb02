"""Notebooks of exercises: the explanation with its picture, the task, the cell to fill in, and the check."""

from __future__ import annotations

import base64

from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from glassformer_course.exercise import ANSWER, Exercise


def notebook(exercise: Exercise, level: str) -> str:
    """Return the notebook of an exercise as JSON text, made from the same source as the `.py` file.

    Args:
        exercise: the exercise.
        level: level of the explanation.

    Raises:
        GlassError: jupytext or nbformat is not installed.
    """
    try:
        import jupytext
        import nbformat
    except ImportError:
        raise GlassError("notebooks need jupytext", install_command("notebooks")) from None
    document = jupytext.reads(exercise.stub, fmt="py:percent")
    for cell in document.cells:
        if cell.cell_type == "code":
            cell.metadata["tags"] = [ANSWER]
    picture = exercise.picture()
    encoded_svg = base64.b64encode(picture.svg().encode("utf-8")).decode("ascii")
    image = f"![{picture.caption}](data:image/svg+xml;base64,{encoded_svg})"
    page = "\n\n".join([exercise.summary, f"*{exercise.effort}.*", exercise.page(level), image, f"*{picture.caption}*"])
    names = ", ".join([f'"{exercise.name}"', *exercise.functions])
    check = f"from glassformer_course import check, hint\n\ncheck({names})"
    v4 = nbformat.v4
    document.cells.insert(1, v4.new_markdown_cell(page))
    document.cells += [
        v4.new_markdown_cell("Run the next cell to check your answer, as often as you like; `hint` gives a hint."),
        v4.new_code_cell(check),
        v4.new_code_cell(f'# hint("{exercise.name}", 1)'),
    ]
    for index, cell in enumerate(document.cells):
        cell["id"] = f"{exercise.name}-{index}".replace("_", "-")  # nbformat's random ids would change every time
    document.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    text: str = nbformat.writes(document, version=4)
    return text
