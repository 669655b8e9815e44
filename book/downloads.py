"""The book as one file to take along, from the committed outputs: PDF, ePub, slides.

    python book/downloads.py            all three, into book/_build
    python book/downloads.py epub       one of them

`jupyter-book build book/` then offers on the first page what is there. Chromium or Chrome
prints the PDF files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

BOOK = Path(__file__).resolve().parent
BUILT = BOOK / "_build"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MATHEMATICS = 120_000  # milliseconds of a page's own time: scripts end long before


def build(*builder: str) -> None:
    """Build the book from the outputs in the notebooks, with one of Sphinx's builders."""
    code = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", code, "build", str(BOOK), *builder]
    known = os.environ | {"RCLCPB_EXECUTE": "off", "PYTHONWARNINGS": "ignore"}
    subprocess.run(command, check=True, env=known)


def printed(page: Path, pdf: Path) -> None:
    """A page as a PDF file, as a browser prints it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"No browser to print with: install one of {', '.join(BROWSERS)}.")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    flags += [f"--virtual-time-budget={MATHEMATICS}", f"--print-to-pdf={pdf}"]
    subprocess.run([browser, *flags, page.as_uri()], check=True, capture_output=True)


def pdf() -> Path:
    """All pages in one file."""
    build("--builder", "singlehtml")
    printed(BUILT / "singlehtml" / "index.html", BUILT / "rcl-cpb.pdf")
    return BUILT / "rcl-cpb.pdf"


def epub() -> Path:
    build("--builder", "custom", "--custom-builder", "epub")
    (made,) = (BUILT / "epub").glob("*.epub")
    return Path(shutil.copy(made, BUILT / "rcl-cpb.epub"))


def slides() -> Path:
    """The page of slides, a section a sheet."""
    if not (BUILT / "html" / "slides.html").exists():
        build()
    printed(BUILT / "html" / "slides.html", BUILT / "slides.pdf")
    return BUILT / "slides.pdf"


KINDS: dict[str, Callable[[], Path]] = {"pdf": pdf, "epub": epub, "slides": slides}


def main(wanted: list[str]) -> None:
    unknown = [name for name in wanted if name not in KINDS]
    if unknown:
        raise SystemExit(f"no download {', '.join(unknown)}: choose from {', '.join(KINDS)}.")
    for name in wanted or KINDS:
        path = KINDS[name]()
        print(f"{path.relative_to(BOOK.parent)}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
