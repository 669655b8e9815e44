"""Keep what a build computed: outputs into the notebooks, records into the README.

    jupyter-book build book/ && python book/store.py
    python book/store.py 10_full_runs       run this chapter now, and keep its outputs

What a reader of the file or of a change does not need stays out: progress bars, widgets,
times and versions. Cells keep their ids, and no text is touched, only outputs.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from prepare import BOOK, RESULTS, ROOT, at_a_glance, findings, result, use_style

TABLE = re.compile(r"(?<=<!-- results -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)
FOUND = re.compile(r"(?<=<!-- findings -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def store(chapter: Path, executed: Path) -> None:
    """Put the outputs of an executed chapter into the chapter."""
    mine, done = nbformat.read(chapter, 4), nbformat.read(executed, 4)
    if [cell.source for cell in mine.cells] != [cell.source for cell in done.cells]:
        raise SystemExit(f"{chapter.name} has changed since it was executed: build again.")
    mine.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell, other in zip(mine.cells, done.cells, strict=True):
        if cell.cell_type == "code":
            cell.execution_count = other.execution_count
            cell.outputs = once([tidy(output) for output in other.outputs if wanted(output)])
    nbformat.write(mine, chapter)


def wanted(output: Any) -> bool:
    """A widget works in no stored page, and stderr is where progress bars go."""
    if output.output_type == "stream":
        return output.name == "stdout"
    return not any("widget" in kind for kind in output.get("data", {}))


def once(outputs: list[Any]) -> list[Any]:
    """The builder adds to a cell's first stream what the later ones say, and leaves those, too."""
    streams = [output for output in outputs if output.output_type == "stream"]
    later = "".join(output.text for output in streams[1:])
    if not later or not streams[0].text.endswith(later) or streams[0].text == later:
        return outputs
    return [output for output in outputs if output not in streams[1:]]


def tidy(output: Any) -> Any:
    """Without the notes that a kernel adds for itself."""
    if "metadata" in output:
        output.metadata = {}
    return output


def readme(text: str) -> str:
    """The README with its table and what was found, from the records."""
    found = "".join(f"- {line}\n" for line in findings(RESULTS))
    text = TABLE.sub(lambda _: at_a_glance(RESULTS, missing=False), text)
    return FOUND.sub(lambda _: found, text)


def renew_readme() -> None:
    """And its figure."""
    path = ROOT / "README.md"
    path.write_text(readme(path.read_text("utf-8")), "utf-8")
    use_style()
    result().savefig(BOOK / "images" / "result.png", dpi=110, bbox_inches="tight")


def run(chapter: Path) -> Path:
    """Execute a chapter by itself, as a build would, which is quicker after a new record."""
    os.environ["RCLCPB_STATIC"] = "1"
    notebook = nbformat.read(chapter, 4)
    where = {"metadata": {"path": str(BOOK)}}
    NotebookClient(notebook, timeout=1800, resources=where, kernel_name="python3").execute()
    executed = BOOK / "_build" / "one_by_one" / chapter.name
    executed.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, executed)
    return executed


def main(names: list[str]) -> None:
    for chapter in sorted(BOOK.glob("*.ipynb")):
        if names and chapter.stem not in names:
            continue
        executed = BOOK / "_build" / "jupyter_execute" / chapter.name
        if names:
            executed = run(chapter)
        if not executed.exists():
            raise SystemExit(f"{chapter.name} is not executed yet: jupyter-book build book/")
        store(chapter, executed)
    renew_readme()


if __name__ == "__main__":
    main(sys.argv[1:])
