"""Notebooks for students: the chapters without outputs and without solutions."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

SOLUTION = re.compile(r"\n*:::\{dropdown\} Solution\n.*?\n:::", re.DOTALL)
ANSWER = "# Your answer, or the code that finds it.\n"


def unsolved(chapter: NotebookNode) -> NotebookNode:
    """The chapter as it was before anyone ran it, with an empty cell for each solution."""
    cells = []
    for cell in chapter.cells:
        if cell.cell_type == "code":
            kept = {"cell_type": "code", "outputs": [], "execution_count": None}
            cells.append(NotebookNode(cell | kept))
        else:
            cells += _questions(cell)
    return NotebookNode(chapter | {"cells": cells})


def _questions(cell: NotebookNode) -> list[NotebookNode]:
    """A cell of text, cut where solutions were."""
    *parts, rest = SOLUTION.split(cell.source)
    found = []
    for k, text in enumerate(parts):
        found.append(nbformat.v4.new_markdown_cell(text.strip(), id=f"{cell.id}-{k}"))
        found.append(nbformat.v4.new_code_cell(ANSWER, id=f"{cell.id}-{k}-answer"))
    if rest.strip() or not parts:
        found.append(NotebookNode(cell | {"source": rest.strip() if parts else cell.source}))
    return found


def write(chapters: list[Path], folder: Path, told: Callable[[str], str] = str) -> None:
    """A notebook a chapter, and all of them in one archive; `told` may change their text."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "exercises.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in chapters:
            text = told(nbformat.writes(unsolved(nbformat.read(path, 4))))
            (folder / path.name).write_text(text, "utf-8")
            archive.writestr(path.name, text)


def links(chapters: list[Path]) -> str:
    """Where a page offers them."""
    items = "".join(
        f'<li><a href="exercises/{path.name}" download>{_title(path)}</a></li>' for path in chapters
    )
    whole = '<a href="exercises/exercises.zip" download>all in one archive</a>'
    return f"<p>One by one, or {whole}:</p><ol>{items}</ol>\n"


def _title(path: Path) -> str:
    return str(nbformat.read(path, 4).cells[0].source.splitlines()[0].lstrip("# "))
